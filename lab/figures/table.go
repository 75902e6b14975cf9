package figures

import (
	"bytes"
	"encoding/csv"
	"math"
	"strconv"
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
	var out bytes.Buffer
	w := csv.NewWriter(&out)
	if err := w.Write(t.columns); err != nil {
		return nil, err
	}
	for _, r := range t.rows {
		fields := []string{r.curve}
		if t.grouped {
			fields = append(fields, r.group)
		}
		for _, v := range r.values {
			fields = append(fields, number(v))
		}
		if err := w.Write(fields); err != nil {
			return nil, err
		}
	}
	w.Flush()
	return out.Bytes(), w.Error()
}

func number(v float64) string {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return ""
	}
	return strconv.FormatFloat(v, 'g', -1, 64)
}
