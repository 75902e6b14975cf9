package proffer

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestAgain: `.ci/again` passes what failed beside other tests and passes by itself, and nothing else.
func TestAgain(t *testing.T) {
	script, err := filepath.Abs(".ci/again")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":     "module again\n\ngo 1.21\n",
		"of_test.go": "package again\n\nimport \"testing\"\n\nfunc TestSound(t *testing.T) {}\n\nfunc TestBroken(t *testing.T) { t.Fail() }\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct{ what, log, says string }{
		{"a test that passes by itself", "ok  \tx\t1s\n--- FAIL: TestSound (0.00s)\n    --- FAIL: TestSound/part (0.00s)\nFAIL\nFAIL\tagain\t0.1s\nFAIL\n", ""},
		{"a broken test", "--- FAIL: TestSound (0.00s)\n--- FAIL: TestBroken (0.00s)\nFAIL\nFAIL\tagain\t0.1s\nFAIL\n", "--- FAIL: TestBroken"},
		{"a package that is not built", "FAIL\tagain [build failed]\nFAIL\n", "not run again, as this is no failed test: again"},
		{"a panic", "--- FAIL: TestSound (0.00s)\npanic: oh [recovered]\nFAIL\tagain\t0.1s\n", "(panic: oh [recovered])"},
		{"six tests", strings.Repeat("--- FAIL: TestSound (0.00s)\n", 6) + "FAIL\tagain\t0.1s\n", "6 tests failed: too many to run again"},
		{"a signal", "signal: killed\n", "no failed test is named"},
	} {
		log := filepath.Join(dir, "log")
		if err := os.WriteFile(log, []byte(c.log), 0o644); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(script, log)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		if (err == nil) != (c.says == "") || !strings.Contains(string(out), c.says) {
			t.Errorf("%s: %v\n%s", c.what, err, out)
		}
	}
}
