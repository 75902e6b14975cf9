package tables

import (
	"reflect"
	"strings"
	"testing"
)

// TestRecord: a recording has all that is printed, tables as cells and the text around them, and the unit
// of a column once; what is printed stays as it is.
func TestRecord(t *testing.T) {
	print := func(b *strings.Builder, record *Recording) {
		record.Write([]byte("12 servers, seed 1\n\n"))
		first := New("method", "p50 µs", "p99", "of flows", "rest")
		first.Addf("hunt\t96\t131\t0.5 %%\t1.00×")
		first.Add()
		first.Addf("single\t7\t8\t12 %%\tnone")
		if err := first.Print(record); err != nil {
			t.Fatal(err)
		}
		second := New() // its headings are a row
		second.Addf("policy\tmean ms\t±\tload")
		second.Addf("  rr\t1.50\t+2\t3 %%")
		if err := second.Print(record); err != nil {
			t.Fatal(err)
		}
		record.Write([]byte("\nthe end\n"))
	}
	var b strings.Builder
	record := Record(&b)
	print(&b, record)
	want := []Part{
		{Text: "12 servers, seed 1", Columns: []Column{{"method", ""}, {"p50", "µs"}, {"p99", "µs"}, {"of flows", "%"}, {"rest", ""}},
			Rows: [][]any{{"hunt", "96", "131", "0.5", "1.00×"}, {"single", "7", "8", "12", "none"}}},
		{Columns: []Column{{"policy", ""}, {"mean", "ms"}, {"±", "ms"}, {"load", "%"}}, Rows: [][]any{{"rr", "1.50", "+2", "3"}}},
		{Text: "the end"},
	}
	if got := record.Parts(); !reflect.DeepEqual(got, want) {
		t.Errorf("recorded\n%v\nwant\n%v", got, want)
	}
	if shown := "method  p50 µs  p99  of flows   rest\n    hunt      96  131     0.5 %  1.00×\n"; !strings.Contains(b.String(), shown) || !strings.HasSuffix(b.String(), "\nthe end\n") {
		t.Errorf("printed\n%s", b.String())
	}
}
