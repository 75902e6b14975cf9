package testbed

import (
	"fmt"
	"os"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Frames are lost on the router's end of each link: those from the node before
// the router sees them, those to the node after it has sent them. So both ends'
// programs see the same losses as with a bad cable.

const maxLoss = 0.5 // each way; TCP hardly moves beyond

func validLoss(p float64) error {
	if p >= 0 && p <= maxLoss { // NaN is neither
		return nil
	}
	return fmt.Errorf("testbed: loss of %v of the frames: say 0 to %v", p, maxLoss)
}

// SetLoss loses every frame on every link between router and nodes with this
// probability from now on, in each direction, independently of all others:
// neighbour discovery and ARP, too. A link that Revive lays loses nothing until
// it stands.
func (b *Bed) SetLoss(p float64) error {
	if err := validLoss(p); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.over {
		return errClosed
	}
	return b.setLoss(p)
}

func (b *Bed) setLoss(p float64) error {
	if p > 0 && !b.lossy {
		for _, n := range b.Nodes() {
			if n.dead {
				continue
			}
			if err := b.fray(n); err != nil {
				return fmt.Errorf("testbed: loss: %w", err)
			}
		}
		b.lossy = true
	}
	b.programs.shared.threshold.Store(uint32(p * (1 << 32)))
	return nil
}

// fray puts the losing programs on both directions of a node's link.
func (b *Bed) fray(n *Node) error {
	if err := b.receive(n.Link, b.programs.lose); err != nil {
		return err
	}
	return b.Router.space.filter(n.Link, netlink.HANDLE_MIN_EGRESS, b.programs.loseOut)
}

// Lost counts the frames lost so. It fails once the bed is closed.
func (b *Bed) Lost() (uint64, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.over {
		return 0, errClosed
	}
	return b.programs.shared.lost.Load(), nil
}

// losing drops a frame if a random word is below the threshold.
func losing(array *os.File, drop, pass int32) *assembly {
	const getRandom = 7 // bpf_get_prandom_u32
	a := newAssembly()
	a.point(r6, array)
	a.add(unix.BPF_JMP|unix.BPF_CALL, 0, 0, 0, getRandom)
	a.read(unix.BPF_W, r2, r6, atThreshold)
	a.compare(unix.BPF_JGE, r0, r2, "pass")
	a.count(r6, atLost)
	a.leave(drop)
	a.label("pass")
	a.leave(pass)
	return a
}
