// Package lab tests, with real daemons: the laboratory's demo and experiments, which measure themselves.
package lab

import (
	"os"
	"testing"

	"proffer/e2e/kit"
)

func TestMain(m *testing.M) { os.Exit(kit.Main(m)) }
