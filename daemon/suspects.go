package daemon

import (
	"fmt"
	"net/netip"
	"slices"

	"proffer/topo"
)

// named spells the senders without a valid tag, by the names that their locators have.
func named(plane Plane, names map[netip.Prefix]string) (list []string, err error) {
	found, err := plane.Suspects()
	for _, s := range found {
		name := s.Sender.String()
		if known := names[s.Sender]; known != "" {
			name += " (" + known + ")"
		}
		list = append(list, fmt.Sprintf("%s: %d packets", name, s.Packets))
	}
	slices.Sort(list)
	return list, err
}

// serversOf are the names of a configuration's servers, by locator.
func serversOf(cfg *topo.LB) map[netip.Prefix]string {
	names := map[netip.Prefix]string{cfg.Locator: "this LB"}
	for _, svc := range cfg.Services {
		for _, s := range svc.Servers {
			if s.Locator.IsValid() {
				names[s.Locator] = "server " + s.Name
			}
		}
	}
	return names
}
