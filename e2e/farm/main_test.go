// Package farm tests, with real daemons: a farm whose servers, LBs and pools come, go and fail, and the connections that stay.
package farm

import (
	"os"
	"testing"

	"proffer/e2e/kit"
)

func TestMain(m *testing.M) { os.Exit(kit.Main(m)) }
