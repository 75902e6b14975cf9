package nexthop

import (
	"net/netip"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"proffer/topo"
)

// settling is how long after a flap a neighbour that fails is asked for again: the kernel sends no question while it
// checks its own addresses for duplicates (up to 2 s), and gives up after 3 s.
const settling = 4 * time.Second

// longFlap is how long a link is without a carrier until its neighbours count as lost, so that status names them.
const longFlap = 10 * time.Second

// memory has the link addresses of held neighbours, for when the kernel forgets them: it does so when the link goes
// down. They are used until the kernel has another, or the neighbour fails while the link is up.
type memory struct {
	last    map[netip.Addr]topo.MAC
	wasDown bool
	since   time.Time // the link is up or down, or the kernel forgot a neighbour although it was up
}

// recall adds the remembered neighbours that the kernel lacks to the known neighbours, and has it look for them. others are
// the kernel's that are not usable, true if they failed.
func (w *Watcher) recall(others map[netip.Addr]bool) {
	m := &w.memory
	last := m.last
	m.last = map[netip.Addr]topo.MAC{}
	var lacking []netip.Addr
	for addr := range w.held {
		if mac, known := w.known[alone(addr)]; known {
			m.last[addr] = mac
		} else if mac, remembered := last[addr]; remembered {
			m.last[addr] = mac
			lacking = append(lacking, addr)
		}
	}
	up := len(lacking) == 0 || w.isUp()
	if up == m.wasDown {
		m.since, m.wasDown = time.Now(), !up
	}
	if !up && time.Since(m.since) > longFlap {
		return
	}
	for _, addr := range lacking {
		failed, has := others[addr]
		if up && !has {
			m.since = time.Now()
		}
		if up && failed && time.Since(m.since) > settling {
			delete(m.last, addr)
			continue
		}
		w.known[alone(addr)] = m.last[addr]
		if up && (failed || !has) {
			_ = w.use(addr, true) // the next refresh logs why not
		}
	}
}

// isUp is true if the link has a carrier.
func (w *Watcher) isUp() bool {
	link, err := netlink.LinkByIndex(w.dev.Index)
	return err == nil && link.Attrs().RawFlags&unix.IFF_UP != 0 && link.Attrs().RawFlags&unix.IFF_LOWER_UP != 0
}
