package daemon

import (
	"net/netip"
	"sync"

	"proffer/control"
	"proffer/topo"
)

// nearHops adds to the next hops of a link the locators of the farm's nodes whose addresses are on the link: their
// packets go to that neighbour, by whichever route the kernel has for them.
type nearHops struct {
	control.NextHops
	near func() []topo.Neighbour

	mu     sync.Mutex
	onLink map[netip.Addr]netip.Addr // the first address of a locator → the neighbour; nil: not looked at yet
}

// Read has the zero MAC for a neighbour that is not resolved yet.
func (h *nearHops) Read() (topo.NextHops, topo.Waiting, error) {
	hops, waiting, err := h.NextHops.Read()
	if err != nil {
		return hops, waiting, err
	}
	near, onLink := h.near(), map[netip.Addr]netip.Addr{}
	macs := map[netip.Prefix]topo.MAC{}
	for _, n := range near {
		if mac, is := neighbour(n.Addr, hops, waiting); is {
			macs[n.Locator], onLink[n.Locator.Addr()] = mac, n.Addr
		}
	}
	for locator, mac := range macs {
		hops[locator] = mac
		delete(waiting, locator)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.onLink = onLink
	return hops, waiting, nil
}

// neighbour reports whether an address is on the link, and its link address, zero if it is not resolved yet.
func neighbour(a netip.Addr, hops topo.NextHops, waiting topo.Waiting) (mac topo.MAC, onLink bool) {
	around := hops.Around(a)
	switch {
	case !around.IsValid():
		return mac, false
	case around.Bits() == a.BitLen():
		return hops[around], true
	}
	return mac, hops[around] == topo.MAC{} && len(waiting[around]) == 0
}

// Resolve asks for the neighbour that the packets go to.
func (h *nearHops) Resolve(a netip.Addr) error { return h.NextHops.Resolve(h.towards(a)) }

// Refresh asks for all of them.
func (h *nearHops) Refresh(addrs []netip.Addr) error {
	h.mu.Lock()
	unknown := h.onLink == nil
	h.mu.Unlock()
	if unknown {
		if _, _, err := h.Read(); err != nil {
			return err
		}
	}
	all := make([]netip.Addr, len(addrs))
	for i, a := range addrs {
		all[i] = h.towards(a)
	}
	return h.NextHops.Refresh(all)
}

func (h *nearHops) towards(a netip.Addr) netip.Addr {
	if p, err := a.Prefix(64); err == nil && a.Is6() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if to, near := h.onLink[p.Addr()]; near {
			return to
		}
	}
	return a
}

// near are the nodes that the LB knows.
func (r *lb) near() []topo.Neighbour { return r.now.Load().Near }

// ways are the link, and the LBs that the farm's file has.
func (r *agent) ways() control.Ways {
	cfg := r.now.Load()
	var lbs []netip.Addr
	for _, n := range cfg.Near {
		if n.LB {
			lbs = append(lbs, n.Locator.Addr())
		}
	}
	return control.Ways{cfg.Interface: lbs}
}
