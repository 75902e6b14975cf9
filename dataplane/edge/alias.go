package edge

import (
	"fmt"
	"math"

	"proffer/dataplane/objects"
	"proffer/policy"
	"proffer/topo"
)

// aliasRows is the alias table of numbers by weight, as bpf/table/alias.h reads it.
func aliasRows(numbers []uint32, weights []float64) (rows []uint64, err error) {
	used := 0
	for _, w := range weights {
		if !(w >= 0) || math.IsInf(w, 1) {
			return nil, fmt.Errorf("weight %v: want a number of 0 or more", w)
		}
		if w > 0 {
			used++
		}
	}
	if used > topo.MaxRows {
		return nil, fmt.Errorf("%d instances have a weight: at most %d", used, topo.MaxRows)
	}
	for _, r := range policy.Alias(weights) {
		rows = append(rows, objects.AliasRow(uint16(numbers[r.Own]), uint16(numbers[r.Other]), r.Part))
	}
	return rows, nil
}
