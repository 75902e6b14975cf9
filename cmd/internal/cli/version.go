package cli

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
)

// version is `git describe` of the source; the Makefile sets it with
// -ldflags -X.
var version string

// Version is the version of the source, its compiler and its platform.
func Version() string {
	info, _ := debug.ReadBuildInfo()
	return fmt.Sprintf("%s (%s, %s/%s)", sourceOf(version, info), runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

// sourceOf is the version set by the Makefile, or else recorded by the Go toolchain: the
// version of the module, or the commit that was checked out.
func sourceOf(set string, info *debug.BuildInfo) string {
	switch {
	case set != "":
		return set
	case info == nil:
		return "of unknown source"
	case info.Main.Version != "" && info.Main.Version != "(devel)":
		return info.Main.Version
	}
	recorded := map[string]string{}
	for _, s := range info.Settings {
		recorded[s.Key] = s.Value
	}
	commit := recorded["vcs.revision"]
	switch {
	case commit == "":
		return "of unknown source"
	case recorded["vcs.modified"] == "true":
		return commit + "-dirty"
	}
	return commit
}

// Commit is what git knows the source by that the program was built from, and whether it had no changes;
// empty: none is recorded.
func Commit() (commit string, clean bool) {
	if version != "" {
		commit, dirty := strings.CutSuffix(version, "-dirty")
		return commit, !dirty
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "", false
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			commit = s.Value
		case "vcs.modified":
			clean = s.Value == "false"
		}
	}
	return commit, clean
}
