package tables

import (
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"proffer/lab/stats"
)

type run struct {
	Name    string       `json:"name"`
	Rate    float64      `json:"rate_pps" digits:"1"`
	Mean    stats.Number `json:"mean_ms"`
	Bounded bool         `json:"bounded,omitempty"`
	Parts   []int        `json:"parts"`
	private int
}

func written(t *testing.T, write func(*strings.Builder) error) string {
	t.Helper()
	var b strings.Builder
	if err := write(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestOf: the fields that JSON names are the columns, but for slices and what no row states.
func TestOf(t *testing.T) {
	all := []run{{Name: "a", Rate: 1.25, Mean: 0.125, Parts: []int{1}, private: 1}, {Name: "b, c", Rate: 2, Mean: stats.Number(math.NaN())}}
	table := Of(all)
	table.Widen([]string{"more"}, func(row int) []any { return []any{10 * row} })
	for name, c := range map[string]struct{ got, want string }{
		"CSV":   {written(t, func(b *strings.Builder) error { return table.CSV(b) }), "name,rate_pps,mean_ms,more\na,1.2,0.125,0\n\"b, c\",2.0,,10\n"},
		"print": {written(t, func(b *strings.Builder) error { return table.Print(b) }), "  name  rate_pps  mean_ms  more\n     a       1.2    0.125     0\n  b, c       2.0             10\n"},
		"JSON":  {strings.Join(strings.Fields(written(t, func(b *strings.Builder) error { return table.JSON(b) })), ""), `[{"name":"a","rate_pps":1.25,"mean_ms":0.125,"parts":[1]},{"name":"b,c","rate_pps":2,"mean_ms":null,"parts":null}]`},
	} {
		if c.got != c.want {
			t.Errorf("%s:\n%s\nwant\n%s", name, c.got, c.want)
		}
	}
	all[1].Bounded = true
	if got := written(t, func(b *strings.Builder) error { return Of(all).CSV(b) }); !strings.HasPrefix(got, "name,rate_pps,mean_ms,bounded\na,1.2,0.125,false\n") {
		t.Errorf("a stated field is no column:\n%s", got)
	}
}

func TestAdd(t *testing.T) {
	table := Left("at", "what").From(7)
	table.Add(1500 * time.Millisecond)
	table.Addf("%d\t%s", 3, "b")
	if got, want := written(t, func(b *strings.Builder) error { return table.Print(b) }), "at        what\n1.500000  \n3         b\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got, want := written(t, func(b *strings.Builder) error { return table.JSON(b) }), "7\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if err := New("a").JSON(&strings.Builder{}); err == nil {
		t.Error("a table of texts has JSON")
	}
}

// TestSave: all files that can be written are there, and the error names the others.
func TestSave(t *testing.T) {
	dir := t.TempDir() + "/made"
	table := New("a")
	table.Add(1)
	paths, err := Save(dir, table.CSVFile("no/folder.csv"), table.CSVFile("a.csv"), JSONFile("a.json", []int{1}))
	if len(paths) != 2 || err == nil || !strings.Contains(err.Error(), "folder.csv") {
		t.Errorf("%v, %v", paths, err)
	}
	for i, want := range []string{"a\n1\n", "[\n  1\n]\n"} {
		if got, err := os.ReadFile(paths[i]); err != nil || string(got) != want {
			t.Errorf("%s: %q, %v", paths[i], got, err)
		}
	}
}
