// Package wire tests, with real daemons: frames byte by byte: both IP families, segment lists, options, UDP.
package wire

import (
	"os"
	"testing"

	"proffer/e2e/kit"
)

func TestMain(m *testing.M) { os.Exit(kit.Main(m)) }
