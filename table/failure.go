package table

import (
	"fmt"
	"slices"
)

// Failures counts the flows that a change of the pool breaks, as 6LB §III-B.1 does. Each
// position of a list stands for one flow, since any server of a list takes a flow
// with equal probability (SR_dyn). flows are those of servers that are not
// removed; failures, those of them with a server that is no longer in the list of
// their bucket, so that recovery would not find it. The paper's failure rate is
// failures / flows.
//
// Both tables have the same buckets and number servers alike; removed reports of
// each number whether that server is gone.
func Failures(before, after *Table, removed []bool) (failures, flows int) {
	if before.buckets != after.buckets {
		panic(fmt.Sprintf("table: %d and %d buckets do not compare", before.buckets, after.buckets))
	}
	for b := range before.buckets {
		now := after.Bucket(b)
		for _, server := range before.Bucket(b) {
			if removed[server] {
				continue
			}
			flows++
			if !slices.Contains(now, server) {
				failures++
			}
		}
	}
	return failures, flows
}
