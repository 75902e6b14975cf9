// Package edge tests, with real daemons: the edge LB and its datapath nodes.
package edge

import (
	"os"
	"testing"

	"proffer/e2e/kit"
)

func TestMain(m *testing.M) {
	if os.Getenv(talkerEnv) != "" {
		os.Exit(beTalker())
	}
	os.Exit(kit.Main(m))
}
