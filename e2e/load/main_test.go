// Package load tests, with real daemons: what servers and applications say of their load, and choosing by it.
package load

import (
	"os"
	"testing"

	"proffer/e2e/kit"
)

func TestMain(m *testing.M) { os.Exit(kit.Main(m)) }
