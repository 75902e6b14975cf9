package plane

import (
	"fmt"
	"net"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"proffer/dataplane/internal/hook"
	"proffer/topo"
)

// Attached is a link that a program is on, or is to be on: its plane ends with its daemon, so nothing is pinned.
type Attached struct {
	*net.Interface           // as it was last read
	xdp            link.Link // nil: no program is there
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

// Advice is that of Plane.
func (a *Attached) Advice() []string { return adviceOn(a.Interface, a.whyGeneric, restartTries) }

// Problem is the reason why packets pass the program by; empty: they do not.
func (a *Attached) Problem() (string, error) {
	if a.xdp == nil {
		return "", nil
	}
	return hook.XDPGone(a.xdp, a.Interface)
}

// Close takes the program off the link.
func (a *Attached) Close() error {
	if a == nil || a.xdp == nil {
		return nil
	}
	xdp := a.xdp
	a.xdp = nil
	return xdp.Close()
}
