package plane

import (
	"errors"
	"fmt"
	"net"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"proffer/dataplane/internal/hook"
	"proffer/topo"
)

// Attached is a link that a program is on, or is to be on.
type Attached struct {
	*net.Interface           // as it was last read
	xdp            link.Link // nil: no program is there
	replaced       bool      // there was one before
	whyGeneric     string    // why XDP does not run in the driver; empty: it does
}

// FindLink reads a link by its name.
func FindLink(name string) (*Attached, error) {
	dev, err := net.InterfaceByName(name)
	if err != nil {
		return nil, fmt.Errorf("link %q: %w", name, err)
	}
	if len(dev.HardwareAddr) != len(topo.MAC{}) {
		return nil, fmt.Errorf("%s has no Ethernet address: choose an Ethernet link", name)
	}
	return &Attached{Interface: dev}, nil
}

// Attach puts a program on the link, if none of ours is there: in the driver if it can, and else in the
// stack.
func (a *Attached) Attach(prog *ebpf.Program) (err error) {
	if a.xdp == nil {
		a.xdp, a.whyGeneric, err = attachXDP(prog, a.Interface)
	}
	return err
}

// Follow reads the link again. It returns the changes, and dataplane.ErrLinkGone for a link that was deleted.
func (a *Attached) Follow() (changed string, err error) {
	now, changed, err := follow(a.Interface)
	if err == nil {
		a.Interface = now
	}
	return changed, err
}

// IsOn reports whether a program of ours is there.
func (a *Attached) IsOn() bool { return a.xdp != nil }

// Replace puts another program in the place of ours.
func (a *Attached) Replace(prog *ebpf.Program) error {
	if err := a.xdp.Update(prog); err != nil {
		return fmt.Errorf("replace the program on %s: %w", a.Name, err)
	}
	return nil
}

// ModeOf is where XDP runs: "generic" if it does on any of the links.
func ModeOf(links ...*Attached) string {
	for _, a := range links {
		if a.whyGeneric != "" {
			return generic
		}
	}
	return native
}

// ErrNone ends the wait for addresses without a next hop: there are none.
var ErrNone = errors.New("no packet lacks a next hop")

// Problem is the reason why packets pass the program by; empty: they do not.
func (a *Attached) Problem() (string, error) {
	if a.xdp == nil {
		return "", nil
	}
	return hook.XDPGone(a.xdp, a.Interface)
}

// Close takes the program off the link, unless a pin holds it there.
func (a *Attached) Close() error {
	if a == nil || a.xdp == nil {
		return nil
	}
	xdp := a.xdp
	a.xdp = nil
	return xdp.Close()
}
