// Package hostile tests, with real daemons: packets and floods that want to harm.
package hostile

import (
	"os"
	"testing"

	"proffer/e2e/kit"
)

func TestMain(m *testing.M) { os.Exit(kit.Main(m)) }
