// Package nexthop copies the kernel's routes and neighbours of one link, for a data
// plane that sends packets past the kernel's forwarding (no FIB lookup on the fast
// path, no `forwarding=1` on servers), and keeps their neighbours resolved.
package nexthop

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"proffer/topo"
)

// usable are the states of neighbours that can receive packets.
const usable = netlink.NUD_REACHABLE | netlink.NUD_STALE | netlink.NUD_DELAY |
	netlink.NUD_PROBE | netlink.NUD_PERMANENT | netlink.NUD_NOARP

// share bounds the time for reading routes: at most one tenth of a CPU, however many
// routes there are and however often they change.
const share = 10

// Watcher knows the next hops of a link.
type Watcher struct {
	dev     *net.Interface
	own     netip.Prefix
	log     *slog.Logger
	buffer  int
	changes chan struct{}

	mu        sync.Mutex
	socket    *nl.NetlinkSocket // nil: the subscription was lost
	closed    bool
	stale     bool          // the routes have changed since they were read
	notBefore time.Time     // when they may be read again
	later     bool          // a signal is due then
	kept      []route       // those read last that packets need
	leftOut   int           // routes that had no room
	known     topo.NextHops // neighbours read last
	objects   objects       // nexthop objects, read with the routes
	odd       string        // rules that are not followed
	targets   map[netip.Prefix]bool
	parted    bool // rules part packets to one address

	memory memory
	held   map[netip.Addr]bool // neighbours that the kernel spares and confirms; nil: not known yet
}

// Watch starts listening for changes of the link's routes and neighbours. own has the sources of the packets that this
// node makes, for rules of routing that ask for them; without it these are the link's addresses.
func Watch(dev string, own netip.Prefix, log *slog.Logger) (*Watcher, error) {
	return watch(dev, own, log, receiveBuffer)
}

func watch(dev string, own netip.Prefix, log *slog.Logger, buffer int) (*Watcher, error) {
	l, err := net.InterfaceByName(dev)
	if err != nil {
		return nil, fmt.Errorf("link %q: %w", dev, err)
	}
	w := &Watcher{dev: l, own: own, log: log, buffer: buffer, changes: make(chan struct{}, 1), stale: true}
	if err := w.subscribe(); err != nil {
		return nil, err
	}
	return w, nil
}

// Changes has a value whenever the result of Read may have changed.
func (w *Watcher) Changes() <-chan struct{} { return w.changes }

// Close ends the watch.
func (w *Watcher) Close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	if w.socket != nil {
		w.socket.Close()
	}
}

// Read returns the next hops of the link, at most topo.MaxHops, and its routes
// that wait for their gateways to be resolved. Neighbours are as the kernel has them now,
// and so are routes, unless their last reading took long.
func (w *Watcher) Read() (hops topo.NextHops, waiting topo.Waiting, err error) {
	routes, err := w.current()
	if err != nil {
		return nil, nil, err
	}
	neighbours, err := w.neighbours()
	if err != nil {
		return nil, nil, err
	}
	hops, waiting, leftOut := nextHops(routes, neighbours, topo.MaxHops)
	if leftOut != w.leftOut {
		w.leftOut = leftOut
		w.log.Warn("routes without room: their packets go by shorter prefixes", "link", w.dev.Name, "left_out", leftOut, "room", topo.MaxHops)
	}
	return hops, waiting, nil
}

// current returns the routes that packets need, and reads them if they may have changed. A
// lost subscription is renewed before: no change after that is missed.
func (w *Watcher) current() ([]route, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.socket == nil {
		if err := w.subscribe(); err != nil {
			return nil, err
		}
	}
	if w.stale && time.Now().Before(w.notBefore) {
		w.signalAt(w.notBefore)
		return w.kept, nil
	}
	if !w.stale {
		return w.kept, nil
	}
	w.stale = false
	began := time.Now()
	kept, err := w.routes()
	took := time.Since(began)
	w.notBefore = time.Now().Add((share - 1) * took)
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
		w.stale = true
		return nil, err
	}
	if err != nil { // the kernel changed routes meanwhile: some may be missing
		w.stale = true
		w.signalAt(w.notBefore)
	}
	w.kept = kept
	return kept, nil
}

// neighbours are those that are usable, and those remembered. A reading that is interrupted by a change is followed by that
// change's signal: messages are compared with the neighbours read last, and wait for a reading.
func (w *Watcher) neighbours() (topo.NextHops, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.known = topo.NextHops{}
	others := map[netip.Addr]bool{}
	for _, family := range families() {
		all, err := netlink.NeighList(w.dev.Index, family)
		if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
			return nil, fmt.Errorf("list neighbours of %s: %w", w.dev.Name, err)
		}
		for i := range all {
			if addr, mac, ok := usableOf(&all[i]); ok {
				w.known[alone(addr)] = mac
			} else if addr.IsValid() {
				others[addr] = all[i].State&netlink.NUD_FAILED != 0
			}
		}
	}
	w.recall(others)
	return w.known, nil
}

// usableOf is a neighbour's address, and its link address if it has one that can receive
// packets.
func usableOf(n *netlink.Neigh) (addr netip.Addr, mac topo.MAC, ok bool) {
	addr = addrOf(n.IP)
	if !addr.IsValid() || n.State&usable == 0 || len(n.HardwareAddr) != 6 {
		return addr, mac, false
	}
	return addr, topo.MAC(n.HardwareAddr), true
}

// Resolve asks the kernel to find addr's neighbour, which shows up as a change. It returns
// an error if the kernel has no route to addr by the link.
func (w *Watcher) Resolve(addr netip.Addr) error {
	via, err := w.towards(addr)
	errs := []error{err}
	for _, v := range via {
		errs = append(errs, w.use(v, false))
	}
	return errors.Join(errs...)
}

// towards lists the neighbours that packets for an address go by: its gateways, or itself.
func (w *Watcher) towards(addr netip.Addr) (via []netip.Addr, err error) {
	addr = addr.Unmap()
	routes, err := w.current()
	if err != nil {
		return nil, err
	}
	r, found := longest(routes, addr)
	if err := w.elsewhere(addr, r, found && !r.dead); err != nil {
		return nil, err
	}
	if via = r.gateways(); len(via) == 0 {
		via = []netip.Addr{addr}
	}
	return via, nil
}

// elsewhere returns an error if the kernel sends packets for an address by another link than ours, or nowhere. While
// it takes a gateway for failed, it goes as a host by a route of a shorter prefix, such as the default route: that
// one does not count.
func (w *Watcher) elsewhere(addr netip.Addr, ours route, found bool) error {
	request := nl.NewNetlinkRequest(unix.RTM_GETROUTE, 0)
	request.AddData(&nl.RtMsg{RtMsg: unix.RtMsg{Family: uint8(familyOf(addr)), Dst_len: uint8(addr.BitLen()), Flags: unix.RTM_F_FIB_MATCH}})
	request.AddData(nl.NewRtAttr(unix.RTA_DST, addr.AsSlice()))
	messages, err := request.Execute(unix.NETLINK_ROUTE, unix.RTM_NEWROUTE)
	if err == nil && len(messages) == 0 {
		err = unix.ENETUNREACH
	}
	if err != nil {
		if found {
			return nil
		}
		return fmt.Errorf("no route to %s: %w", addr, err)
	}
	w.mu.Lock()
	known, parted := w.objects, w.parted
	w.mu.Unlock()
	if parted && found { // the kernel was not asked about such a packet
		return nil
	}
	r, by := parseRoute(messages[0], w.dev.Index, known)
	if !by && (!found || r.prefix.Bits() > ours.prefix.Bits()) {
		return fmt.Errorf("resolve %s: the route leaves by another link than %s", addr, w.dev.Name)
	}
	return nil
}

// Refresh holds every gateway of the link and every neighbour on the way to targets, and no other neighbour.
// The next reading includes the routes, whether the kernel reported a change or not.
func (w *Watcher) Refresh(targets []netip.Addr) error {
	held := map[netip.Addr]bool{}
	var errs []error
	w.aim(targets)
	for _, t := range targets {
		via, err := w.towards(t)
		for _, v := range via {
			held[v] = true
		}
		errs = append(errs, err)
	}
	routes, err := w.current()
	if err != nil {
		return errors.Join(append(errs, err)...)
	}
	for _, r := range routes {
		for _, g := range r.gateways() {
			held[g] = true
		}
	}
	for v := range held {
		errs = append(errs, w.use(v, true))
	}
	return errors.Join(append(errs, w.release(held, errors.Join(errs...) == nil))...)
}

// aim notes the targets; the next reading includes the routes.
func (w *Watcher) aim(targets []netip.Addr) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stale, w.targets = true, map[netip.Prefix]bool{}
	for _, t := range targets {
		w.targets[alone(t.Unmap())] = true
	}
}

// isDead is true of the types of routes that send nothing (RTN_THROW: unless another table
// has a route).
func isDead(routeType int) bool {
	switch routeType {
	case unix.RTN_UNREACHABLE, unix.RTN_BLACKHOLE, unix.RTN_PROHIBIT, unix.RTN_THROW:
		return true
	}
	return false
}
