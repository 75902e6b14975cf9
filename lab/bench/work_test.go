package bench

import (
	"regexp"
	"strings"
	"testing"

	"proffer/lab/farmrun"
)

// TestBenchUncountedWork: a row of work whose work is not counted is an error.
func TestBenchUncountedWork(t *testing.T) {
	s := newSession(&Bench{Turns: 1, Flows: []int{1000}, Rows: regexp.MustCompile("^work//")})
	s.show, s.note = func(farmrun.Step) {}, func(string) {}
	s.CPU, _ = LastCPU()
	err := onCPU(s.CPU, func() error {
		if err := place(); err != nil {
			return err
		}
		if err := s.loadWork(); err != nil {
			return err
		}
		s.work.counting = true
		for _, done := range []workDone{s.work.stranger, s.work.servers[0], s.work.servers[1]} {
			r := workRun{in: s.work, of: done}
			if _, err := r.Run(s.CPU, workTries, nil); err == nil || !strings.Contains(err.Error(), "this is another path") {
				t.Errorf("%T: %v", done, err)
			}
			r.hook = (*workBench).count
			if _, err := r.Run(s.CPU, 2*workTries, nil); err != nil {
				t.Errorf("%T: %v", done, err)
			}
			s.work.counting = true
		}
		return nil
	})
	if err := s.close(); err != nil {
		t.Error(err)
	}
	if err != nil {
		t.Fatal(err)
	}
}
