package trace

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"
)

func TestRead(t *testing.T) {
	const ms = time.Millisecond
	both := []Arrival{{0, 20 * ms}, {500 * ms, 0}, {500 * ms, 1500 * ms}}
	for name, c := range map[string]struct {
		text string
		want File
	}{
		"plain":         {"0 0.02\n0.5 0\n0.5 1.5\n", File{Arrivals: both, HasAt: true, HasService: true}},
		"from anywhere": {"# recorded\n\n 100.0\t0.02\r\n100.5 0\r\n1.005e2 1.5", File{Arrivals: both, HasAt: true, HasService: true}},
		"commas":        {"0,0.02\n0.5,0\n0.5,1.5\n", File{Arrivals: both, HasAt: true, HasService: true}},
		"header":        {"\ufeffserver, service_s ,hops,arrival_s\ns1,0.02,1,7\ns2,0,1,7.5\ns1,1.5,2,7.5\n", File{Arrivals: both, HasAt: true, HasService: true}},
		"one column":    {"service_s\n0.02\n0.04\n", File{Arrivals: []Arrival{{0, 20 * ms}, {0, 40 * ms}}, HasService: true}},
		"the other":     {"arrival_s,method\n2,GET\n3,PUT\n", File{Arrivals: []Arrival{{}, {time.Second, 0}}, HasAt: true}},
	} {
		got, err := Read("trace.txt", strings.NewReader(c.text))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if !slices.Equal(got.Arrivals, c.want.Arrivals) || got.HasAt != c.want.HasAt || got.HasService != c.want.HasService {
			t.Errorf("%s: got %+v, want %+v", name, got, c.want)
		}
	}
}

func TestReadRefuses(t *testing.T) {
	const want = `want "arrival_s service_s", such as "0.25 0.019"`
	for text, problem := range map[string]string{
		"":                             `trace.txt:1: the file ends without a request; ` + want,
		"# nothing\n\n":                `trace.txt:3: the file ends without a request; ` + want,
		"arrival_s,service_s\n":        `trace.txt:2: the file ends without a request; ` + want,
		"1\n":                          `trace.txt:1: has 1 fields; ` + want,
		"1 2 3\n":                      `trace.txt:1: has 3 fields; ` + want,
		"at,took\n1,2\n":               `trace.txt:1: is a header without arrival_s and service_s, or no number; ` + want + `, or a header with these names`,
		"1s 2s\n":                      `trace.txt:1: is a header without arrival_s and service_s, or no number; ` + want + `, or a header with these names`,
		"1 2\n# half\n3\n":             `trace.txt:3: has 1 fields; want 2, as in the first line`,
		"arrival_s,service_s\n1,2,3":   `trace.txt:2: has 3 fields; want 2, as in the first line`,
		"arrival_s,service_s\n1,\n":    `trace.txt:2: service_s "" is not a number of seconds from 0 to 4000000000; ` + want,
		"1 2\n2 20ms\n":                `trace.txt:2: service_s "20ms" is not a number of seconds from 0 to 4000000000; ` + want,
		"1 2\n2 -1\n":                  `trace.txt:2: service_s "-1" is not a number of seconds from 0 to 4000000000; ` + want,
		"1 2\nNaN 1\n":                 `trace.txt:2: arrival_s "NaN" is not a number of seconds from 0 to 4000000000; ` + want,
		"1 2\n1e99 1\n":                `trace.txt:2: arrival_s "1e99" is not a number of seconds from 0 to 4000000000; ` + want,
		"1 2\n3 2\n2 2\n":              `trace.txt:3: arrival_s 2 is before the line above; want the order of arrival`,
		"1 2\n" + longer(maxLine) + "": `trace.txt:2: is longer than 65536 bytes; ` + want,
	} {
		_, err := Read("trace.txt", strings.NewReader(text))
		var mistake *Error
		if !errors.As(err, &mistake) || err.Error() != problem {
			t.Errorf("%.40q:\n got %v\nwant %s", text, err, problem)
		}
	}
}

func longer(n int) string { return strings.Repeat("1", n+1) }

func TestReadFails(t *testing.T) {
	broken := errors.New("broken disk")
	if _, err := Read("trace.txt", iotest.ErrReader(broken)); !errors.Is(err, broken) || !strings.Contains(err.Error(), "trace.txt") {
		t.Errorf("got %v", err)
	}
}

func FuzzRead(f *testing.F) {
	f.Add("0 1\n2 3\n")
	f.Add("arrival_s,service_s\n1,2\n")
	f.Add("x,service_s\n,2\n")
	f.Fuzz(func(t *testing.T, text string) {
		trace, err := Read("trace.txt", strings.NewReader(text))
		if err != nil {
			if strings.ContainsAny(err.Error(), "\n\r") {
				t.Fatalf("%q is not one line", err)
			}
			return
		}
		last := time.Duration(0)
		for _, a := range trace.Arrivals {
			if a.At < last || a.Service < 0 {
				t.Fatalf("%+v after %v", a, last)
			}
			last = a.At
		}
	})
}
