package figures

import (
	"bytes"
	"encoding/csv"
	"strconv"
)

// table is the numbers of a figure in long form: the name of a curve, then its
// values, a row a point. Units are part of the column names.
type table struct {
	columns []string
	rows    []row
}

type row struct {
	curve  string
	values []float64
}

func (t table) csv() ([]byte, error) {
	var out bytes.Buffer
	w := csv.NewWriter(&out)
	if err := w.Write(t.columns); err != nil {
		return nil, err
	}
	for _, r := range t.rows {
		fields := []string{r.curve}
		for _, v := range r.values {
			fields = append(fields, strconv.FormatFloat(v, 'g', -1, 64))
		}
		if err := w.Write(fields); err != nil {
			return nil, err
		}
	}
	w.Flush()
	return out.Bytes(), w.Error()
}
