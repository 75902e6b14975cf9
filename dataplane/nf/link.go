package nf

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"

	"github.com/cilium/ebpf"

	"proffer/dataplane"
	"proffer/dataplane/internal/plane"
	"proffer/dataplane/objects"
	"proffer/topo"
)

// SetNextHop gives an LB, by its place in the configuration, the neighbour that changed packets
// go to.
func (n *Node) SetNextHop(lb int, mac topo.MAC) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	e, known := n.ends[lb]
	if !known {
		return fmt.Errorf("there is no LB %d", lb)
	}
	return n.turn(lb, plane.Toward(e, mac))
}

// Reach gives the LBs their next hops.
func (n *Node) Reach(_ string, hops topo.NextHops) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.hops = hops
	for lb, addr := range n.cfg.LBs {
		mac, _ := hops.Lookup(addr)
		if now := plane.Toward(n.ends[lb], mac); now != n.ends[lb] {
			if err := n.turn(lb, now); err != nil {
				return err
			}
		}
	}
	return nil
}

func (n *Node) turn(lb int, now objects.EdgeEdgeEnd) error {
	n.ends[lb] = now
	if err := n.objs.NodeLbs.Put(n.cfg.LBs[lb].As16(), now); err != nil {
		return fmt.Errorf("write the next hop of LB %v: %w", n.cfg.LBs[lb], err)
	}
	return nil
}

// Address is this node's address at the tunnel to an LB, by its place in the configuration; the zero
// Addr for another place.
func (n *Node) Address(lb int) netip.Addr {
	n.mu.Lock()
	defer n.mu.Unlock()
	e, known := n.ends[lb]
	if !known {
		return netip.Addr{}
	}
	return plane.From(&e)
}

// Attach puts the program on the link, in the driver if it can; from now on flows, bindings and the firewalls'
// states outlive this process.
func (n *Node) Attach() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.Lasting.Attach(map[*plane.Attached]*ebpf.Program{n.link: n.objs.Node}, n.lasting())
}

// Follow gives the programs the link and this node's addresses there as they are now. It returns the changes,
// and dataplane.ErrLinkGone if the link was deleted.
func (n *Node) Follow() (changed string, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if changed, err = n.link.Follow(); err != nil {
		return "", err
	}
	own, err := plane.ReadAddresses()
	if err != nil {
		return changed, err
	}
	var changes []string
	if changed != "" {
		changes = append(changes, changed)
	}
	var errs []error
	for i, lb := range n.cfg.LBs {
		was := n.ends[i]
		now, err := plane.Renewed(was, n.link.Interface, own)
		if err == nil && now != was {
			err = n.objs.NodeLbs.Put(lb.As16(), now)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("LB %v: %w", lb, err))
			continue
		}
		n.ends[i] = now
		if from, before := plane.From(&now), plane.From(&was); from != before {
			changes = append(changes, fmt.Sprintf("address %v for %v is now %v", before, lb, from))
		}
	}
	return strings.Join(changes, "; "), errors.Join(errs...)
}

// Link is the link as it is now.
func (n *Node) Link(string) *net.Interface {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.link.Interface
}

// Mode is where XDP runs: "native" or "generic".
func (n *Node) Mode() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return plane.ModeOf(n.link)
}

// Unresolved has nothing to wait for: packets go to LBs, or by the kernel's routes.
func (n *Node) Unresolved() (netip.Addr, error) { return netip.Addr{}, plane.ErrNone }

// Suspects are none: LBs sign no packets.
func (n *Node) Suspects() ([]dataplane.Suspect, error) { return nil, nil }

// Advice is the facts about the link that cost speed or packets.
func (n *Node) Advice() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.Lasting.Advice(n.link)
}

// Problems lists why packets pass the program by.
func (n *Node) Problems() ([]string, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	problem, err := n.link.Problem()
	if err != nil || problem == "" {
		return nil, err
	}
	return []string{problem}, nil
}
