package proffer

import (
	"io/fs"
	"path/filepath"
	"regexp"
	"testing"
)

// Clocks that jump, or that go on while the machine is suspended. Ages and times of flows
// are those of CLOCK_MONOTONIC and of the kernel's ticks, which do neither: a date that is
// set, by an hour or a year, moves no flow's age, and a machine that wakes has the flows that
// it had.
var jumpingClock = regexp.MustCompile(`bpf_ktime_get_(boot|tai)_ns|CLOCK_(REALTIME|BOOTTIME|TAI)|\.(Unix|UnixNano|UnixMilli|UnixMicro)\(\)|\.Round\(0\)`)

// TestClocks: neither the programs nor the product read a clock that jumps.
func TestClocks(t *testing.T) {
	files := 0
	for _, dir := range []string{"bpf", "daemon", "control", "dataplane", "nexthop", "loadpage", "weights", "plan", "api", "config"} {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !regexp.MustCompile(`\.(c|h|go)$`).MatchString(path) || regexp.MustCompile(`_test\.go$`).MatchString(path) {
				return err
			}
			files++
			if found := jumpingClock.FindString(read(t, path)); found != "" {
				t.Errorf("%s reads a clock that jumps: %s", path, found)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if files < 100 {
		t.Errorf("only %d files were looked at", files)
	}
}
