// Package agents tests, with real daemons: what an agent knows of its server: owners of flows, listeners, full queues, half-closed connections.
package agents

import (
	"os"
	"testing"

	"proffer/e2e/kit"
)

func TestMain(m *testing.M) { os.Exit(kit.Main(m)) }
