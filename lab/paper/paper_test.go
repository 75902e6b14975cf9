package paper

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var sketch = Options{Seeds: 2, Quick: true}

func draw(t *testing.T, list []Figure) string {
	t.Helper()
	dir := t.TempDir()
	files, err := Draw(t.Context(), list, sketch, dir, func(Progress) {})
	if err != nil {
		t.Fatal(err)
	}
	if len(files) != 3*len(list) {
		t.Fatalf("%d files of %d figures", len(files), len(list))
	}
	return dir
}

// TestEveryFigureDraws twice, with the same bytes. The edge's have their own
// test, and so has what is measured.
func TestEveryFigureDraws(t *testing.T) {
	t.Parallel()
	all := slices.DeleteFunc(Figures(), func(f Figure) bool { return strings.HasPrefix(f.Name, "edge") || f.Measured() })
	once, again := draw(t, all), draw(t, all)
	for _, f := range all {
		for _, extension := range []string{".svg", ".png", ".csv"} {
			data := read(t, filepath.Join(once, f.Name+extension))
			if !bytes.Equal(data, read(t, filepath.Join(again, f.Name+extension))) {
				t.Errorf("%s%s differs when drawn again", f.Name, extension)
			}
			switch extension {
			case ".svg":
				parses(t, f.Name, data)
			case ".csv":
				if rows := csvRows(t, data); len(rows) < 3 {
					t.Errorf("%s has %d rows", f.Name, len(rows))
				}
			}
		}
	}
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func parses(t *testing.T, name string, svg []byte) {
	t.Helper()
	for d := xml.NewDecoder(bytes.NewReader(svg)); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Errorf("%s: %v", name, err)
			return
		}
	}
}

func csvRows(t *testing.T, data []byte) [][]string {
	t.Helper()
	rows, err := csv.NewReader(bytes.NewReader(data)).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

// number is what a drawn figure's CSV has in a column, for a curve at x.
func number(t *testing.T, dir, figure, series, x, column string) float64 {
	t.Helper()
	rows := csvRows(t, read(t, filepath.Join(dir, figure+".csv")))
	at := slices.Index(rows[0], column)
	for _, row := range rows[1:] {
		if row[0] == series && row[1] == x {
			value, err := strconv.ParseFloat(row[at], 64)
			if err != nil {
				t.Fatal(err)
			}
			return value
		}
	}
	t.Fatalf("%s has no %s at %s", figure, series, x)
	return 0
}

// TestPublished holds what the papers' text states and no seed changes much.
func TestPublished(t *testing.T) {
	list, err := Named([]string{"6lb-7", "6lb-8", "6lb-9"})
	if err != nil {
		t.Fatal(err)
	}
	dir := draw(t, list)
	for _, c := range []struct {
		figure, series, x, column string
		from, to                  float64
	}{
		{"6lb-7", "ours: fewer with 2 choices", "8", "fewer_with_2_choices_percent", 40, 48},
		{"6lb-8a", "single", "0.9", "mean_response_time", 9.999, 10.001},
		{"6lb-8b", "single", "0.5", "fairness_index", 0.3333, 0.3334},
		{"6lb-8f", "hunt:static:4", "6", "servers_percent_of_single", 70, 71},
		{"6lb-9", "hunt:static:4", "0.9", "wrongful_rejections_percent", 4.4, 4.5},
	} {
		if got := number(t, dir, c.figure, c.series, c.x, c.column); got < c.from || got > c.to {
			t.Errorf("%s, %s at %s: %v, want %v to %v", c.figure, c.series, c.x, got, c.from, c.to)
		}
	}
	if at, err := crossing(); err != nil || at < 0.982 || at > 0.983 {
		t.Errorf("static:8 beats static:4 from %v (%v), want 0.983", at, err)
	}
}

func TestNamed(t *testing.T) {
	parts, err := Named([]string{"6lb-8", "6lb-8a", "hlb-2"})
	if err != nil || len(parts) != 7 || parts[6].Name != "hlb-2" {
		t.Errorf("%d figures, %v", len(parts), err)
	}
	for name, nearest := range map[string]string{"6lb8a": "6lb-8a", "hlb-11": "hlb-1", "p90-farm-": "p90-farm-b", "": "", "6lb-": "6lb-"} {
		if _, err := Named([]string{name}); err == nil || !strings.Contains(err.Error(), "did you mean "+nearest) {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// TestInterrupted keeps what is complete and names the rest.
func TestInterrupted(t *testing.T) {
	list, err := Named([]string{"6lb-9", "6lb-7", "srlb-5"})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	files, err := Draw(ctx, list, sketch, dir, func(p Progress) {
		if p.At == 2 {
			cancel()
		}
	})
	cut := (*Interrupted)(nil)
	if !errors.As(err, &cut) || !slices.Equal(cut.Missing, []string{"6lb-7", "srlb-5"}) || len(files) != 3 {
		t.Fatalf("%v, %v", files, err)
	}
	left, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || !slices.Equal(left, slices.Sorted(slices.Values(files))) {
		t.Errorf("in the folder: %v (%v)", left, err)
	}
}

func TestFolderThatCannotBeWritten(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	_, err := Draw(t.Context(), Figures(), sketch, file, func(Progress) { t.Error("work was begun") })
	if err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("got %v", err)
	}
}

func TestProgressEnds(t *testing.T) {
	list, err := Named([]string{"srlb-3", "6lb-9"})
	if err != nil {
		t.Fatal(err)
	}
	var all []Progress
	if _, err := Draw(t.Context(), list, sketch, t.TempDir(), func(p Progress) { all = append(all, p) }); err != nil {
		t.Fatal(err)
	}
	first, last := all[0], all[len(all)-1]
	if want := list[0].Takes(sketch) + list[1].Takes(sketch); first.Left != want || want == 0 {
		t.Errorf("%v left at the beginning, estimated %v", first.Left, want)
	}
	if !last.Complete || last.At != 2 || last.Of != 2 || last.Left != 0 {
		t.Errorf("the last progress is %+v", last)
	}
}
