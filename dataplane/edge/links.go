package edge

import (
	"errors"
	"fmt"
	"net"

	"github.com/cilium/ebpf/link"

	"proffer/dataplane/internal/plane"
	"proffer/topo"
)

// findLink reads a link of the configuration.
func (l *LB) findLink(name string) error {
	if l.links[name] != nil {
		return nil
	}
	dev, err := net.InterfaceByName(name)
	if err != nil {
		return fmt.Errorf("link %q: %w", name, err)
	}
	if len(dev.HardwareAddr) != len(topo.MAC{}) {
		return fmt.Errorf("%s has no Ethernet address: choose an Ethernet link", name)
	}
	l.links[name] = dev
	return nil
}

// Attach puts the programs on the links, in the driver if it can.
func (l *LB) Attach() error {
	l.attached = map[string]link.Link{}
	if err := l.attachAll(); err != nil {
		return errors.Join(err, l.Detach())
	}
	return nil
}

// attachAll puts the programs on the links that lack them, once Attach was called.
func (l *LB) attachAll() error {
	if l.attached == nil {
		return nil
	}
	for name := range l.links {
		if err := l.attach(name); err != nil {
			return err
		}
	}
	return nil
}

// attach puts the program of a link on it, if it is not there.
func (l *LB) attach(name string) error {
	if l.attached[name] != nil {
		return nil
	}
	prog := l.objs.EdgeBack
	switch name {
	case l.cfg.Clients:
		prog = l.objs.EdgeClients
	case l.cfg.World:
		prog = l.objs.EdgeWorld
	}
	on, err := plane.AttachOne(prog, l.links[name])
	if err != nil {
		return fmt.Errorf("attach to %s: %w", name, err)
	}
	l.attached[name] = on
	return nil
}

// leave takes the program off a link that no configuration names any more.
func (l *LB) leave(name string) error {
	on := l.attached[name]
	delete(l.attached, name)
	delete(l.links, name)
	if on == nil {
		return nil
	}
	return on.Close()
}

// Detach takes the programs off the links.
func (l *LB) Detach() error {
	var errs []error
	for _, on := range l.attached {
		errs = append(errs, on.Close())
	}
	l.attached = nil
	return errors.Join(errs...)
}
