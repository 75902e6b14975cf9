package stats

import (
	"encoding/json"
	"math"
	"strconv"
)

// Number is one that there may not be: NaN and infinity are null in JSON, empty
// in CSV, a dash in a table.
type Number float64

// Exists is that there is one.
func (n Number) Exists() bool { return !math.IsNaN(float64(n)) && !math.IsInf(float64(n), 0) }

// MarshalJSON writes null for a number that there is not.
func (n Number) MarshalJSON() ([]byte, error) {
	if !n.Exists() {
		return []byte("null"), nil
	}
	return json.Marshal(float64(n))
}

// Text is the number in a table.
func (n Number) Text(digits int) string {
	if !n.Exists() {
		return "–"
	}
	return strconv.FormatFloat(float64(n), 'f', digits, 64)
}
