package cli

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// version is what `git describe` says of the source; the Makefile sets it with
// -ldflags -X.
var version string

// Version is the version of the source, and by what and for what it was built.
func Version() string {
	info, _ := debug.ReadBuildInfo()
	return fmt.Sprintf("%s (%s, %s/%s)", sourceOf(version, info), runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

// sourceOf is what the Makefile set, or else what the Go toolchain recorded: the
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
