package figures

import (
	"bytes"
	"encoding/csv"
	"encoding/xml"
	"errors"
	"fmt"
	"image/png"
	"io"
	"io/fs"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"gonum.org/v1/plot/plotter"

	"proffer/lab/sim"
)

const points = 5000 // more than are drawn

func responses() []Responses {
	r := rand.New(rand.NewPCG(1, 2))
	var all []Responses
	for _, name := range []string{"single", "hunt:static:4", "a <name> & \"more\""} {
		p := Responses{Name: name}
		for range points {
			p.Seconds = append(p.Seconds, r.ExpFloat64()*0.04)
		}
		all = append(all, p)
	}
	return all
}

func loads() []Load {
	r := rand.New(rand.NewPCG(3, 4))
	var all []Load
	for _, name := range []string{"single", "hunt:static:4"} {
		l := Load{Name: name}
		for i := range points {
			l.Seconds = append(l.Seconds, float64(i)/100)
			l.Busy = append(l.Busy, 4*r.Float64())
			l.Fairness = append(l.Fairness, r.Float64())
		}
		all = append(all, l)
	}
	return all
}

// drawings are both figures, drawn again.
func drawings(t *testing.T) map[string]*Figure {
	t.Helper()
	cdf, err := CDF("CDF, ρ = 0.88", responses())
	if err != nil {
		t.Fatal(err)
	}
	load, err := LoadOverTime("load, ρ = 0.88", loads())
	if err != nil {
		t.Fatal(err)
	}
	return map[string]*Figure{"cdf": cdf, "load": load}
}

func TestSave(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	for name, f := range drawings(t) {
		paths, err := f.Save(dir, name)
		if err != nil {
			t.Fatal(err)
		}
		base := filepath.Join(dir, name)
		if want := []string{base + ".svg", base + ".png", base + ".csv"}; !slices.Equal(paths, want) {
			t.Fatalf("got %v, want %v", paths, want)
		}
		for i, check := range []func(*testing.T, []byte){checkSVG, checkPNG, checkCSV} {
			data, err := os.ReadFile(paths[i])
			if err != nil {
				t.Fatal(err)
			}
			check(t, data)
		}
	}
}

func checkSVG(t *testing.T, data []byte) {
	if bytes.Contains(data, []byte("href=")) || bytes.Contains(data, []byte("url(")) {
		t.Error("the SVG needs other files")
	}
	for path := range bytes.SplitSeq(data, []byte("<path ")) {
		if n := bytes.Count(path, []byte("L")); n > 2*maxPoints { // a step is two lines
			t.Errorf("a curve has %d lines: was it thinned?", n)
		}
	}
	var text []string
	for d := xml.NewDecoder(bytes.NewReader(data)); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if words, ok := token.(xml.CharData); ok {
			text = append(text, string(words))
		}
	}
	if !slices.Contains(text, "hunt:static:4") {
		t.Error("no legend in the SVG")
	}
}

func checkPNG(t *testing.T, data []byte) {
	picture, err := png.Decode(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	if size := picture.Bounds().Size(); size.X != Width || size.Y != Height {
		t.Errorf("the PNG has %v pixels, want %d × %d", size, Width, Height)
	}
	blue := 0
	for y := range Height {
		for x := range Width {
			if r, g, b, _ := picture.At(x, y).RGBA(); r>>8 == 0x00 && g>>8 == 0x72 && b>>8 == 0xb2 {
				blue++
			}
		}
	}
	if blue < 1000 {
		t.Errorf("%d pixels of hunt:static:4's blue", blue)
	}
}

func checkCSV(t *testing.T, data []byte) {
	rows, err := csv.NewReader(bytes.NewReader(data)).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	counts := map[string]int{}
	for _, r := range rows[1:] {
		counts[r[0]]++
		for _, field := range r[1:] {
			if _, err := strconv.ParseFloat(field, 64); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, n := range counts {
		if n != points {
			t.Errorf("%s has %d rows, want %d", name, n, points)
		}
	}
	if header := strings.Join(rows[0], ","); !strings.HasPrefix(header, "series,") || !strings.Contains(header, "_s,") {
		t.Errorf("header %q", header)
	}
}

func TestSameInputSameBytes(t *testing.T) {
	first, second := drawings(t), drawings(t)
	for name := range first {
		for format, render := range map[string]func(*Figure) ([]byte, error){"svg": (*Figure).svg, "png": (*Figure).png} {
			a, errA := render(first[name])
			b, errB := render(second[name])
			again, errC := render(first[name])
			if err := errors.Join(errA, errB, errC); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(a, b) || !bytes.Equal(a, again) {
				t.Errorf("%s.%s differs", name, format)
			}
		}
	}
}

func TestTableHoldsWhatWasMeasured(t *testing.T) {
	f, err := CDF("", []Responses{{"single", []float64{0.3, 0.1}}})
	if err != nil {
		t.Fatal(err)
	}
	got, _ := f.table.csv()
	if want := "series,response_time_s,share_of_requests\nsingle,0.1,0.5\nsingle,0.3,1\n"; string(got) != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
	f, err = LoadOverTime("", []Load{{"single", []float64{0, 0.5}, []float64{4, 2}, []float64{1, 0.25}}})
	if err != nil {
		t.Fatal(err)
	}
	got, _ = f.table.csv()
	if want := "series,time_s,busy_workers_mean,fairness_index\nsingle,0,4,1\nsingle,0.5,2,0.25\n"; string(got) != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
}

func TestRefuses(t *testing.T) {
	one := []float64{1}
	nan := []float64{math.NaN()}
	draw := func(p ...Responses) error { _, err := CDF("", p); return err }
	trace := func(l ...Load) error { _, err := LoadOverTime("", l); return err }
	for want, err := range map[string]error{
		`draw CDF: no curves to draw`:                                                                draw(),
		`draw CDF: curve 1 has no name`:                                                              draw(Responses{"a", one}, Responses{"", one}),
		`draw CDF: two curves are named "a"`:                                                         draw(Responses{"a", one}, Responses{"a", one}),
		`draw CDF: curve "a" has no points`:                                                          draw(Responses{Name: "a"}),
		`draw CDF: curve "a": response time 0 is NaN`:                                                draw(Responses{"a", nan}),
		`draw CDF: curve "a": response time -1 s is below zero`:                                      draw(Responses{"a", []float64{-1}}),
		`draw load over time: no curves to draw`:                                                     trace(),
		`draw load over time: curve "a" has no points`:                                               trace(Load{Name: "a"}),
		`draw load over time: curve "a": 1 times, 0 loads, 1 fairness indices; want as many of each`: trace(Load{"a", one, nil, one}),
		`draw load over time: curve "a": fairness index 0 is NaN`:                                    trace(Load{"a", one, one, nan}),
		`draw load over time: curve "a": time 1, 0.5 s, is before the one ahead of it`:               trace(Load{"a", []float64{1, 0.5}, []float64{1, 1}, []float64{1, 1}}),
		`figure name "a/b": want a file name without folder and extension`:                           save(t.TempDir(), "a/b"),
		`figure name "": want a file name without folder and extension`:                              save(t.TempDir(), ""),
	} {
		if err == nil || err.Error() != want {
			t.Errorf("got %v\nwant %s", err, want)
		}
	}
}

func save(dir, name string) error {
	f, err := CDF("", []Responses{{"single", []float64{1}}})
	if err == nil {
		_, err = f.Save(dir, name)
	}
	return err
}

// Root writes where it likes, so the folders here cannot be written by nature.
func TestSaveSaysWhichFolderAndWhy(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{file, filepath.Join(file, "below"), "/proc/figures"} {
		err := save(dir, "cdf")
		var cause *fs.PathError
		if !errors.As(err, &cause) || !strings.Contains(err.Error(), "figure cdf") || !strings.Contains(err.Error(), file) && !strings.Contains(err.Error(), "/proc") {
			t.Errorf("%s: %v", dir, err)
		}
	}
	taken := t.TempDir()
	if err := os.Mkdir(filepath.Join(taken, "cdf.png"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := save(taken, "cdf"); err == nil || !strings.Contains(err.Error(), "save figure cdf in "+taken) || !strings.Contains(err.Error(), "is a directory") {
		t.Errorf("got %v", err)
	}
}

// The slowest requests do not squeeze the others into the left edge, and a
// curve that is done earlier goes on to the right one.
func TestCDFEndsAtTail(t *testing.T) {
	slow, fast := Responses{Name: "slow"}, Responses{"fast", []float64{0.001}}
	for i := range 1000 {
		slow.Seconds = append(slow.Seconds, float64(i+1)/1000)
	}
	slow.Seconds[999] = 100
	f, err := CDF("", []Responses{slow, fast})
	if err != nil {
		t.Fatal(err)
	}
	if x := f.panels[0].X; x.Min != 0 || x.Max != 995 || x.Label.Text != "response time (ms)" {
		t.Errorf("the x axis is %q from %v to %v, want ms from 0 to 995", x.Label.Text, x.Min, x.Max)
	}
	want := plotter.XYs{{X: 0, Y: 0}, {X: 1, Y: 1}, {X: 995, Y: 1}}
	if got := distribution(fast.Seconds, 1000, 995); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestExtremeInputs(t *testing.T) {
	for _, seconds := range [][]float64{{0}, {0, 0, 0}, {1e-9}, {1e6}, {1e-6, 1e3}} {
		f, err := CDF("", []Responses{{"single", seconds}})
		if err != nil {
			t.Fatal(err)
		}
		g, err := LoadOverTime("", []Load{{"single", seconds, seconds, make([]float64, len(seconds))}})
		if err != nil {
			t.Fatal(err)
		}
		for _, figure := range []*Figure{f, g} {
			if _, err := figure.Save(t.TempDir(), "x"); err != nil {
				t.Error(err)
			}
		}
	}
}

func TestThinKeepsPeaks(t *testing.T) {
	line := make(plotter.XYs, 100_000)
	for i := range line {
		line[i].X = float64(i)
	}
	line[31_415].Y, line[92_653].Y = 7, -7
	got := thin(line)
	if len(got) > maxPoints {
		t.Errorf("%d points, want at most %d", len(got), maxPoints)
	}
	for _, want := range []plotter.XY{line[0], line[31_415], line[92_653], line[len(line)-1]} {
		if !slices.Contains(got, want) {
			t.Errorf("lost %v", want)
		}
	}
	if !slices.IsSortedFunc(got, func(a, b plotter.XY) int { return int(a.X - b.X) }) {
		t.Error("out of order")
	}
}

func TestSmooth(t *testing.T) {
	got := smooth([]float64{0, smoothing, 1e9}, []float64{0, 1, 5})
	want := []float64{0, 1 - 1/math.E, 5}
	for i, p := range got {
		if math.Abs(p.Y-want[i]) > 1e-12 {
			t.Errorf("point %d is %v, want %v", i, p.Y, want[i])
		}
	}
}

func TestPolicyKeepsItsLook(t *testing.T) {
	alone := lines([]string{"lsq"})[0]
	among := lines([]string{"single", "hunt:static:4", "lsq"})[2]
	if fmt.Sprint(alone) != fmt.Sprint(among) {
		t.Errorf("lsq is %v alone and %v among others", alone, among)
	}
	var names []string
	for i := range 24 {
		names = append(names, fmt.Sprint("policy", i))
	}
	seen := map[string]bool{}
	for i, style := range lines(append(names, "single", "hunt:dynamic", "hunt:static:4")) {
		if look := fmt.Sprint(style); seen[look] {
			t.Errorf("curve %d looks like another", i)
		} else {
			seen[look] = true
		}
	}
}

// TestBenchLooks: a way to dispatch has one colour in the bench's figure, and no
// two of its curves look alike.
func TestBenchLooks(t *testing.T) {
	names := []string{
		"hunt", "hunt-insert", "hunt-ipv4", "single", "single-insert", "single-ipv4",
		"floor: line", "floor: hash", "floor: lru-hash",
	}
	styles := lines(names)
	seen := map[string]bool{}
	for i, style := range styles {
		look := fmt.Sprint(style)
		if seen[look] {
			t.Errorf("%s looks like another", names[i])
		}
		seen[look] = true
		if i < 6 && style.Color != styles[i/3*3].Color {
			t.Errorf("%s has not the colour of %s", names[i], names[i/3*3])
		}
	}
}

// TestPolicyLooks: the colour and dash that a policy's file states exist.
func TestPolicyLooks(t *testing.T) {
	for _, p := range sim.Spellings() {
		if _, ok := known(p.Name); !ok && p.Drawn != "" {
			t.Errorf("%s is drawn %q: want a colour and a dash of style.go", p.Name, p.Drawn)
		}
	}
	if l, ok := known("hunt:static:8"); !ok || l.color != green {
		t.Error("a spelling that is not listed has lost its look")
	}
}

func TestTicks(t *testing.T) {
	for _, c := range []struct {
		greatest float64
		most     int
		want     string
	}{
		{1, 5, "0.0 0.2 0.4 0.6 0.8 1.0"},
		{30, 8, "0 5 10 15 20 25 30"},
		{486.3, 8, "0 100 200 300 400"},
		{7.3, 5, "0 2 4 6"},
		{0.0123, 8, "0.000 0.002 0.004 0.006 0.008 0.010 0.012"},
		{1e6, 5, "0 200000 400000 600000 800000 1000000"},
	} {
		var labels []string
		for _, mark := range (ticks{most: c.most}).Ticks(0, c.greatest) {
			labels = append(labels, mark.Label)
		}
		if got := strings.Join(labels, " "); got != c.want {
			t.Errorf("to %v: %s, want %s", c.greatest, got, c.want)
		}
	}
}
