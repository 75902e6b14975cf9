// Package daemons tests, with real daemons: the daemons' lives: start, reload, restart, takeover, keys, what others do to their links and files.
package daemons

import (
	"os"
	"testing"

	"proffer/e2e/kit"
)

func TestMain(m *testing.M) { os.Exit(kit.Main(m)) }
