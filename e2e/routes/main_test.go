// Package routes tests, with real daemons: the host's routes, next hops, virtual routers, and links that flap.
package routes

import (
	"os"
	"testing"

	"proffer/e2e/kit"
)

func TestMain(m *testing.M) { os.Exit(kit.Main(m)) }
