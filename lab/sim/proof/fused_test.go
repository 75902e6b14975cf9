package proof

import (
	"os"
	"os/exec"
	"regexp"
	"testing"
)

// TestNothingIsFused: on arm64 and others the compiler may round x·y + z once
// instead of twice, and every result would depend on the machine. A conversion,
// float64(x*y) + z, forbids it.
func TestNothingIsFused(t *testing.T) {
	t.Parallel()
	build := exec.Command("go", "build", "-gcflags=-S", "../...", "../../../weights")
	build.Env = append(os.Environ(), "GOARCH=arm64", "CGO_ENABLED=0")
	code, err := build.CombinedOutput()
	if err != nil {
		t.Fatalf("go build: %v\n%.2000s", err, code)
	}
	if len(code) == 0 {
		t.Fatal("the compiler printed no code")
	}
	for _, line := range regexp.MustCompile(`\S+\.go:\d+\)\s+FN?M(ADD|SUB)[SD].*`).FindAll(code, -1) {
		t.Errorf("fused: %s", line)
	}
}
