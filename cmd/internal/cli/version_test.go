package cli

import (
	"runtime/debug"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

func TestSourceOf(t *testing.T) {
	const commit = "0123456789abcdef0123456789abcdef01234567"
	recorded := func(version string, settings ...debug.BuildSetting) *debug.BuildInfo {
		return &debug.BuildInfo{Main: debug.Module{Version: version}, Settings: settings}
	}
	at := debug.BuildSetting{Key: "vcs.revision", Value: commit}
	for _, c := range []struct {
		name string
		set  string
		info *debug.BuildInfo
		want string
	}{
		{"by make", "3044d7f-dirty", recorded("v1.2.3", at), "3044d7f-dirty"},
		{"go install of a release", "", recorded("v1.2.3", at), "v1.2.3"},
		{"go build in a checkout", "", recorded("(devel)", at), commit},
		{"go build in a changed checkout", "", recorded("", at, debug.BuildSetting{Key: "vcs.modified", Value: "true"}), commit + "-dirty"},
		{"go build without git", "", recorded("(devel)"), "of unknown source"},
		{"no record at all", "", nil, "of unknown source"},
	} {
		if got := sourceOf(c.set, c.info); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// TestVersionFlag: one line with the program's name, and nothing is run.
func TestVersionFlag(t *testing.T) {
	var out, errOut strings.Builder
	root := Root(&cobra.Command{Use: "program"})
	if code := Run(t.Context(), root, []string{"--version"}, &out, &errOut); code != OK || errOut.Len() > 0 {
		t.Errorf("exit %d, stderr %q", code, errOut.String())
	}
	if want := "program version " + Version() + "\n"; out.String() != want {
		t.Errorf("%q, want %q", out.String(), want)
	}
}
