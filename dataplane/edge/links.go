package edge

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/cilium/ebpf"

	"proffer/dataplane"
	"proffer/dataplane/internal/plane"
)

// findLink reads a link of the configuration. A link that has another name since then is the same.
func (l *LB) findLink(name string) error {
	if l.links[name] != nil {
		return nil
	}
	found, err := plane.FindLink(name)
	if err != nil {
		return err
	}
	for _, known := range l.links {
		if known.Index == found.Index {
			found = known
		}
	}
	l.links[name] = found
	return nil
}

// macs are the addresses of the links to clients and world, as they begin a frame.
func (l *LB) macs() (macs [2]uint64) {
	for i, side := range l.sides() {
		macs[i] = binary.NativeEndian.Uint64(append(side.HardwareAddr[:6:6], 0, 0))
	}
	return macs
}

// fillSpeakers gives the programs the addresses that errors are sent from.
func (l *LB) fillSpeakers(own plane.Addresses) error {
	var all [4][16]byte
	for i, side := range l.sides() {
		from := own.Speakers(side.Index)
		copy(all[2*i:], from[:])
	}
	if all == l.speakers {
		return nil
	}
	if err := l.objs.EdgeAddresses.Set(all); err != nil {
		return fmt.Errorf("write the addresses of the links: %w", err)
	}
	l.speakers = all
	return nil
}

// sides are the links to clients and world.
func (l *LB) sides() []*net.Interface {
	return []*net.Interface{l.links[l.cfg.Clients].Interface, l.links[l.cfg.World].Interface}
}

// Attach puts the programs on the links, in the driver if it can; from now on flows outlive this process.
func (l *LB) Attach() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.copyFlows(); err != nil {
		return err
	}
	programs := map[*plane.Attached]*ebpf.Program{}
	for name, on := range l.links {
		programs[on] = l.programOf(name)
	}
	if err := l.Lasting.Attach(programs, l.state()); err != nil {
		return err
	}
	l.attached = true
	err := errors.Join(l.copyFlows(), l.before.Close()) // those that began meanwhile
	l.before = nil
	return err
}

// attachAll puts the programs on the links that lack them, once Attach was called.
func (l *LB) attachAll() error {
	if !l.attached {
		return nil
	}
	for name, on := range l.links {
		if err := l.Add(on, l.programOf(name)); err != nil {
			return err
		}
	}
	return nil
}

// programOf is the program of a link.
func (l *LB) programOf(name string) *ebpf.Program {
	switch name {
	case l.cfg.Clients:
		return l.objs.EdgeClients
	case l.cfg.World:
		return l.objs.EdgeWorld
	}
	return l.objs.EdgeBack
}

// all lists the links, each once.
func (l *LB) all() (list []*plane.Attached) {
	for _, on := range l.links {
		if !slices.Contains(list, on) {
			list = append(list, on)
		}
	}
	return list
}

// leaveUnused takes the programs off the links that the configuration does not name.
func (l *LB) leaveUnused() error {
	names := []string{l.cfg.Clients, l.cfg.World}
	for _, n := range l.cfg.Nodes {
		names = append(names, n.Link)
	}
	var errs []error
	for name, on := range l.links {
		if slices.Contains(names, name) {
			continue
		}
		delete(l.links, name)
		delete(l.gone, name)
		if !slices.Contains(slices.Collect(maps.Values(l.links)), on) { // by another name
			errs = append(errs, l.Leave(on))
		}
	}
	return errors.Join(errs...)
}

// Detach takes the programs off the links, and removes the pins.
func (l *LB) Detach() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.attached = false
	return l.Lasting.Detach(l.all()...)
}

// Follow gives the programs the host's addresses and the links as they are now. It returns the changes, and
// dataplane.ErrLinkGone if the link to clients or world was deleted. A link to nodes that was deleted is
// taken again when a link of its name is there.
func (l *LB) Follow() (changed string, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	own, err := plane.ReadAddresses()
	if err != nil {
		return "", err
	}
	var changes []string
	errs := []error{l.fillOwn(own), l.fillSpeakers(own)}
	for _, name := range slices.Sorted(maps.Keys(l.links)) {
		change, err := l.followLink(name)
		if change != "" {
			changes = append(changes, name+": "+change)
		}
		errs = append(errs, err)
	}
	if len(changes) > 0 {
		if err := l.objs.EdgeMacs.Set(l.macs()); err != nil {
			errs = append(errs, fmt.Errorf("write the addresses of the links: %w", err))
		}
	}
	others, err := l.served.Follow(l.sides()...)
	if others != "" {
		changes = append(changes, others)
	}
	errs = append(errs, err)
	renewed, err := l.renewEnds(own)
	return strings.Join(append(changes, renewed...), "; "), errors.Join(append(errs, err)...)
}

// followLink reads a link again.
func (l *LB) followLink(name string) (changed string, err error) {
	on := l.links[name]
	changed, err = on.Follow()
	if !errors.Is(err, dataplane.ErrLinkGone) || name == l.cfg.Clients || name == l.cfg.World {
		return changed, err
	}
	again, err := plane.FindLink(name)
	if err != nil {
		if l.gone[name] {
			return "", nil
		}
		l.gone[name] = true
		return "the link is gone: its nodes get no packets until it is made again", nil
	}
	if err := l.Leave(on); err != nil {
		return "", fmt.Errorf("leave the link %s that is gone: %w", name, err)
	}
	l.links[name] = again
	if l.attached {
		if err := l.Add(again, l.programOf(name)); err != nil {
			return "", err
		}
	}
	delete(l.gone, name)
	return "the link was made again", nil
}

// renewEnds writes the ends of nodes that are others by links and addresses of now. A node that no
// address of this host reaches keeps its end.
func (l *LB) renewEnds(own plane.Addresses) (changes []string, err error) {
	var errs []error
	for _, n := range l.cfg.Nodes {
		if l.gone[n.Link] {
			continue
		}
		was := l.ends[n.Server]
		now, err := plane.Renewed(was, l.links[n.Link].Interface, own)
		if err == nil && now != was {
			err = l.objs.EdgeNodes.Put(uint32(n.Server), now)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("node %d: %w", n.Server, err))
			continue
		}
		l.ends[n.Server] = now
		if from, before := plane.From(&now), plane.From(&was); from != before {
			changes = append(changes, fmt.Sprintf("address %v for %v is now %v", before, n.Addr, from))
		}
	}
	return changes, errors.Join(errs...)
}

// fillOwn gives the programs the addresses of this host.
func (l *LB) fillOwn(all plane.Addresses) error {
	now := map[netip.Addr]bool{}
	for _, of := range all {
		for _, a := range of {
			now[a.Own] = true
		}
	}
	for addr := range now {
		if !l.own[addr] {
			if err := l.objs.EdgeOwn.Put(addr.As16(), uint32(1)); err != nil {
				return fmt.Errorf("write the host's address %v: %w", addr, err)
			}
			l.own[addr] = true
		}
	}
	for addr := range l.own {
		if !now[addr] {
			if err := l.objs.EdgeOwn.Delete(addr.As16()); err != nil {
				return fmt.Errorf("remove the host's address %v: %w", addr, err)
			}
			delete(l.own, addr)
		}
	}
	return nil
}

// Link is a link of the configuration as it is now; nil: it is gone.
func (l *LB) Link(name string) *net.Interface {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.gone[name] || l.links[name] == nil {
		return nil
	}
	return l.links[name].Interface
}

// Mode is where XDP runs: "generic" if it does on any of the links.
func (l *LB) Mode() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return plane.ModeOf(l.all()...)
}

// Advice is the facts about the links that cost speed or packets.
func (l *LB) Advice() (all []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(l.links)) {
		if !l.gone[name] {
			all = append(all, l.Lasting.Advice(l.links[name])...)
		}
	}
	return append(all, l.served.Advice(l.sides()...)...)
}

// Problems lists why packets pass the programs by.
func (l *LB) Problems() (found []string, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(l.links)) {
		if l.gone[name] {
			continue
		}
		problem, err := l.links[name].Problem()
		if err != nil {
			return nil, err
		}
		if problem != "" {
			found = append(found, problem)
		}
	}
	return found, nil
}
