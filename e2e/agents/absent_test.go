package agents

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"proffer/e2e/kit"
	"proffer/lab/testbed"
	"proffer/topo"
)

// TestAbsentApplication: an agent names a service whose application ends, and no more when it is back, in its
// own namespace and in a container's.
func TestAbsentApplication(t *testing.T) {
	bed := kit.Up(t, testbed.Config{Servers: 2})
	app := behind(t, bed, bed.Servers[0], testbed.RoutedVeth)
	s := kit.Settings(t, "hunt:static:4")
	s.Agent = func(n *testbed.Node, a *topo.Agent) {
		if n == bed.Servers[0] {
			a.Services[0].Owner, a.Services[0].Netns = topo.Netns, filepath.Join("/run/netns", app.Namespace)
		}
	}
	places := []*testbed.Node{app, bed.Servers[1]}
	farm := kit.Start(t, bed, s)
	for i, place := range places {
		server := bed.Servers[i]
		named := func(when string) func() bool {
			return func() bool {
				return slices.ContainsFunc(kit.Status(t, farm, server).Problems, func(p string) bool {
					return strings.Contains(p, fmt.Sprintf("no process listens at %v", netip.AddrPortFrom(bed.VIP, testbed.Port))) && strings.HasSuffix(strings.Split(p, ": start")[0], when)
				})
			}
		}
		kit.Eventually(t, "the agent names a service without an application", named(" yet"))
		first := kit.Echo(t, place, bed.VIP)
		kit.Eventually(t, "the application has come", func() bool { return len(kit.Status(t, farm, server).Problems) == 0 })
		if err := first.Close(); err != nil {
			t.Fatal(err)
		}
		kit.Eventually(t, "the agent names a dead application", named(" any more"))
		kit.Echo(t, place, bed.VIP)
		kit.Eventually(t, "the application is back", func() bool { return len(kit.Status(t, farm, server).Problems) == 0 })
	}
}
