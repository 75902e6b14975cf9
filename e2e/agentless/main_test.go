// Package agentless tests, with real daemons: servers without an agent: set up by the printed commands, and served over the kernel's own tunnels.
package agentless

import (
	"os"
	"testing"

	"proffer/e2e/kit"
)

func TestMain(m *testing.M) { os.Exit(kit.Main(m)) }
