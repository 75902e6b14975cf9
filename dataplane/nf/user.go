package nf

import (
	"fmt"
	"net"

	"github.com/cilium/ebpf"

	"proffer/dataplane/internal/plane"
	"proffer/dataplane/objects"
	"proffer/topo"
)

func (n *Node) user(topo.User) (function, error) {
	return function{objects.NFProgNodeUser, func(slot uint32) error {
		service, place := slot/topo.MaxChain, slot%topo.MaxChain
		var before uint32
		if err := n.objs.UserPlaces.Lookup(service, &before); err != nil {
			return err
		}
		if before != 0 && before != place+1 {
			return fmt.Errorf("a chain has one function in user space, and this one has two")
		}
		return n.objs.UserPlaces.Put(service, place+1)
	}}, nil
}

// Join gives a core its way to user space and back: packets leave by near and reach the AF_XDP socket
// at far. Until then they are dropped.
func (n *Node) Join(core int, near, far *net.Interface, socket int) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, end := range []struct {
		prog *ebpf.Program
		dev  *net.Interface
	}{{n.objs.NodeResume, near}, {n.objs.NodeHand, far}} {
		on := &plane.Attached{Interface: end.dev}
		if err := on.Attach(end.prog); err != nil {
			return err
		}
		n.joined = append(n.joined, on)
	}
	if err := n.objs.UserSockets.Put(uint32(core), uint32(socket)); err != nil {
		return fmt.Errorf("give core %d its socket: %w", core, err)
	}
	link := objects.NFUserLink{Index: uint32(near.Index), Mac: [6]byte(near.HardwareAddr)}
	if err := n.objs.UserLinks.Put(uint32(core), link); err != nil {
		return fmt.Errorf("give core %d its link: %w", core, err)
	}
	return nil
}

// rejoin gives the links to user space the programs of now.
func (n *Node) rejoin() error {
	for i, on := range n.joined {
		if err := on.Replace([]*ebpf.Program{n.objs.NodeResume, n.objs.NodeHand}[i%2]); err != nil {
			return err
		}
	}
	return nil
}

func isInUserSpace(c *topo.Chain) bool {
	return (&topo.Datapath{Chains: []topo.Chain{*c}}).InUserSpace()
}
