// Package sizes tests, with real daemons: packets too large for a link: fragments, MTUs, super-packets, and ICMP.
package sizes

import (
	"os"
	"testing"

	"proffer/e2e/kit"
)

func TestMain(m *testing.M) { os.Exit(kit.Main(m)) }
