// Package guests tests, with real daemons: kernels of their own in QEMU: the oldest kernel, other clocks, SYN cookies, full tables.
package guests

import (
	"os"
	"testing"

	"proffer/e2e/kit"
)

func TestMain(m *testing.M) { os.Exit(kit.Main(m)) }
