// Package farmtest checks the verdicts of experiments.
package farmtest

import (
	"strings"
	"testing"
)

// Holds checks a verdict: nil, or an error that names what.
func Holds(t *testing.T, name string, err error, what string) {
	t.Helper()
	switch {
	case what == "" && err != nil:
		t.Errorf("%s: %v", name, err)
	case what != "" && (err == nil || !strings.Contains(err.Error(), what)):
		t.Errorf("%s: got %v, want %q", name, err, what)
	}
}
