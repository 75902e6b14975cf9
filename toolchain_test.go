package proffer

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// installedGo is a go command of some version that fetches the toolchain of its folder's
// parent, as go mod download prints it.
const installedGo = `#!/bin/sh
case "$1 $2" in
version*) echo "go version go%s linux/amd64" ;;
"env GOHOSTOS") echo linux ;;
"env GOHOSTARCH") echo amd64 ;;
"mod download") echo "$4" >FETCHED; echo '{'; echo '	"Dir": "TOOLCHAIN",'; echo '}' ;;
*) echo "installed go $*" ;;
esac
`

// TestOldGo: with a Go that cannot read go.mod, make fetches go.mod's version as a module
// and uses that; with a later one, or none, it does not.
func TestOldGo(t *testing.T) {
	want := strings.Fields(read(t, "go.mod"))[3]
	for _, c := range []struct{ version, out, fetched string }{
		{"1.19.8", "fetched go build\n", "golang.org/toolchain@v0.0.1-go" + want + ".linux-amd64"},
		{"1.20", "fetched go build\n", "golang.org/toolchain@v0.0.1-go" + want + ".linux-amd64"},
		{"1.21.0", "installed go build\n", ""},
		{want, "installed go build\n", ""},
	} {
		dir := t.TempDir()
		bin, toolchain, fetched := filepath.Join(dir, "bin"), filepath.Join(dir, "toolchain"), filepath.Join(dir, "fetched")
		script := strings.NewReplacer("%s", c.version, "FETCHED", fetched, "TOOLCHAIN", toolchain).Replace(installedGo)
		executable(t, filepath.Join(bin, "go"), script, 0o755)
		executable(t, filepath.Join(toolchain, "bin/go"), "#!/bin/sh\necho \"fetched go $*\"\n", 0o644) // as in a module
		executable(t, filepath.Join(toolchain, "pkg/tool/linux_amd64/compile"), "", 0o644)
		out, err := withGo(t, bin, "go", "build").Output()
		if err != nil || string(out) != c.out {
			t.Errorf("Go %s: %q, %v, want %q", c.version, out, err, c.out)
		}
		if got, err := os.ReadFile(fetched); strings.TrimSpace(string(got)) != c.fetched {
			t.Errorf("Go %s fetched %q (%v), want %q", c.version, got, err, c.fetched)
		}
	}
	out, err := withGo(t, t.TempDir(), "go", "build").CombinedOutput()
	if err == nil || strings.Count(string(out), "\n") != 1 || !strings.Contains(string(out), "apt-get install golang") {
		t.Errorf("without Go: %v, %q; want one line with the command that helps", err, out)
	}
}

// withGo runs a command through .ci/with-go, with the programs that it needs and no other
// Go in $PATH.
func withGo(t *testing.T, bin string, args ...string) *exec.Cmd {
	t.Helper()
	programs := t.TempDir()
	for _, name := range []string{"bash", "sh", "dirname", "sed", "mktemp", "rmdir", "chmod"} {
		path, err := exec.LookPath(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(path, filepath.Join(programs, name)); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command(".ci/with-go", args...)
	cmd.Env = []string{"PATH=" + bin + ":" + programs}
	return cmd
}

func executable(t *testing.T, path, text string, mode os.FileMode) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
}
