package trace

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The columns of a trace file, both in seconds.
const (
	atColumn      = "arrival_s"
	serviceColumn = "service_s"
)

const wantedLine = `want "` + atColumn + ` ` + serviceColumn + `", such as "0.25 0.019"`

// File is the content of a trace file. A column that it lacks is 0 in every Arrival.
type File struct {
	Arrivals          []Arrival // At counts from the first arrival
	HasAt, HasService bool
}

// reader is a File in the making.
type reader struct {
	File
	fields                int // of every line; 0: no line yet
	comma                 bool
	atField, serviceField int
}

// Error is one mistake in a trace file. Lines count from 1.
type Error struct {
	File    string
	Line    int
	Problem string
}

func (e *Error) Error() string { return fmt.Sprintf("%s:%d: %s", e.File, e.Line, e.Problem) }

// Read reads a trace, one request a line, in order of arrival: two numbers in
// seconds, the instant of arrival from any origin and the service time. With a
// header it is a CSV file that has one or both of the columns arrival_s and
// service_s among others. Empty lines and those that begin with # are skipped.
// name is only a name for errors, which name the line and its required content.
func Read(name string, r io.Reader) (*File, error) {
	f := &reader{}
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxLine)
	number := 0
	for lines.Scan() {
		number++
		line := strings.TrimSpace(strings.TrimPrefix(lines.Text(), "\ufeff"))
		if line == "" || line[0] == '#' {
			continue
		}
		if problem := f.line(line); problem != "" {
			return nil, &Error{name, number, problem}
		}
	}
	if err := lines.Err(); errors.Is(err, bufio.ErrTooLong) {
		return nil, &Error{name, number + 1, fmt.Sprintf("is longer than %d bytes; %s", maxLine, wantedLine)}
	} else if err != nil {
		return nil, fmt.Errorf("read trace %s: %w", name, err)
	}
	if len(f.Arrivals) == 0 {
		return nil, &Error{name, number + 1, "the file ends without a request; " + wantedLine}
	}
	f.fromFirst()
	return &f.File, nil
}

const maxLine = 1 << 16

// line takes in a line and returns the error in it.
func (f *reader) line(line string) string {
	if f.fields == 0 {
		f.comma = strings.Contains(line, ",")
		fields := f.split(line)
		f.fields = len(fields)
		if _, err := strconv.ParseFloat(fields[0], 64); err != nil {
			return f.header(fields)
		}
		f.HasAt, f.HasService, f.serviceField = true, true, 1
		if f.fields != 2 {
			return fmt.Sprintf("has %d fields; %s", f.fields, wantedLine)
		}
	}
	fields := f.split(line)
	if len(fields) != f.fields {
		return fmt.Sprintf("has %d fields; want %d, as in the first line", len(fields), f.fields)
	}
	return f.request(fields)
}

func (f *reader) split(line string) []string {
	if !f.comma {
		return strings.Fields(line)
	}
	fields := strings.Split(line, ",")
	for i := range fields {
		fields[i] = strings.TrimSpace(fields[i])
	}
	return fields
}

// header finds the columns by name.
func (f *reader) header(names []string) string {
	f.atField, f.serviceField = slices.Index(names, atColumn), slices.Index(names, serviceColumn)
	f.HasAt, f.HasService = f.atField >= 0, f.serviceField >= 0
	if !f.HasAt && !f.HasService {
		return fmt.Sprintf("is a header without %s and %s, or no number; %s, or a header with these names", atColumn, serviceColumn, wantedLine)
	}
	return ""
}

func (f *reader) request(fields []string) (problem string) {
	var a Arrival
	if f.HasAt {
		if a.At, problem = seconds(fields[f.atField], atColumn); problem != "" {
			return problem
		}
		if n := len(f.Arrivals); n > 0 && a.At < f.Arrivals[n-1].At {
			return fmt.Sprintf("%s %s is before the line above; want the order of arrival", atColumn, fields[f.atField])
		}
	}
	if f.HasService {
		if a.Service, problem = seconds(fields[f.serviceField], serviceColumn); problem != "" {
			return problem
		}
	}
	f.Arrivals = append(f.Arrivals, a)
	return ""
}

// maxSeconds is later than any Unix time now and far from the end of int64 ns.
const maxSeconds = 4e9

func seconds(text, column string) (time.Duration, string) {
	x, err := strconv.ParseFloat(text, 64)
	if err != nil || !(x >= 0 && x <= maxSeconds) {
		return 0, fmt.Sprintf("%s %.40q is not a number of seconds from 0 to %.0f; %s", column, text, maxSeconds, wantedLine)
	}
	return time.Duration(math.Round(x * float64(time.Second))), ""
}

func (f *reader) fromFirst() {
	first := f.Arrivals[0].At
	for i := range f.Arrivals {
		f.Arrivals[i].At -= first
	}
}
