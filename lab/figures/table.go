package figures

import (
	"bytes"
	"math"
	"strconv"

	"proffer/lab/tables"
)

// table is the numbers of a figure in long form: the name of a curve, then its
// values, a row a point. Units are part of the column names. A missing value,
// NaN, is an empty cell.
type table struct {
	columns []string
	grouped bool // the second column is the group
	rows    []row
}

type row struct {
	curve  string
	values []float64
	group  string
}

func (t table) csv() ([]byte, error) {
	all := tables.New(t.columns...)
	for _, r := range t.rows {
		cells := []any{r.curve}
		if t.grouped {
			cells = append(cells, r.group)
		}
		for _, v := range r.values {
			cells = append(cells, number(v))
		}
		all.Add(cells...)
	}
	var out bytes.Buffer
	err := all.CSV(&out)
	return out.Bytes(), err
}

func number(v float64) string {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return ""
	}
	return strconv.FormatFloat(v, 'g', -1, 64)
}
