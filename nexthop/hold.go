package nexthop

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"net/netip"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// owner is the number that the kernel shows our neighbours with (NDA_PROTOCOL).
const owner = 80

// entry is a neighbour as the kernel has it.
type entry struct {
	addr     netip.Addr
	state    uint16
	flags    int
	extended int
	owner    byte
}

// held: strangers that fill the kernel's table take no such neighbour's place, and the kernel confirms it all the
// time, so that another link address is followed.
func (e entry) held() bool { return e.flags&netlink.NTF_EXT_LEARNED != 0 }

// entryOf reads struct ndmsg and its attributes.
func entryOf(m []byte) (e entry, err error) {
	n, err := netlink.NeighDeserialize(m)
	if err != nil {
		return e, err
	}
	attributes, err := nl.ParseRouteAttr(m[unix.SizeofNdMsg:])
	for _, a := range attributes {
		if a.Attr.Type == netlink.NDA_PROTOCOL && len(a.Value) > 0 {
			e.owner = a.Value[0]
		}
	}
	e.addr, e.state, e.flags, e.extended = addrOf(n.IP), uint16(n.State), n.Flags, n.FlagsExt
	return e, err
}

// request begins a request about a neighbour, or about all.
func (w *Watcher) request(kind, how, family int, flags uint8, addr netip.Addr) *nl.NetlinkRequest {
	request := nl.NewNetlinkRequest(kind, how)
	head := header(make([]byte, unix.SizeofNdMsg))
	head[0], head[10] = byte(family), flags
	binary.NativeEndian.PutUint32(head[4:], uint32(w.dev.Index))
	request.AddData(head)
	if addr.IsValid() {
		request.AddData(nl.NewRtAttr(unix.NDA_DST, addr.AsSlice()))
	}
	return request
}

// find is the neighbour of an address; without it it has no state.
func (w *Watcher) find(addr netip.Addr) entry {
	messages, err := w.request(unix.RTM_GETNEIGH, 0, familyOf(addr), 0, addr).Execute(unix.NETLINK_ROUTE, unix.RTM_NEWNEIGH)
	if err != nil || len(messages) == 0 {
		return entry{addr: addr}
	}
	e, err := entryOf(messages[0])
	if err != nil {
		return entry{addr: addr}
	}
	return e
}

// use makes the kernel treat this neighbour as in use: the kernel resolves it, or confirms it if it is stale. To hold
// it is to have the kernel do that from now on, and spare it where the table is full. A permanent neighbour needs none of
// that, and would be permanent no more (__neigh_update of Linux 5.16 and later); a neighbour that another program holds stays
// that program's.
func (w *Watcher) use(addr netip.Addr, hold bool) error {
	e := w.find(addr)
	if e.state&(netlink.NUD_PERMANENT|netlink.NUD_NOARP) != 0 {
		return nil
	}
	flags, extended := e.flags&netlink.NTF_EXT_LEARNED, e.extended&netlink.NTF_EXT_MANAGED
	if hold && !e.held() {
		flags, extended = netlink.NTF_EXT_LEARNED, netlink.NTF_EXT_MANAGED
	}
	if err := w.set(addr, flags, extended, hold && !e.held()); err != nil {
		return fmt.Errorf("resolve %s on %s: %w", addr, w.dev.Name, err)
	}
	return nil
}

// set makes the kernel use a neighbour, with these flags.
func (w *Watcher) set(addr netip.Addr, flags, extended int, ours bool) error {
	request := w.request(unix.RTM_NEWNEIGH, unix.NLM_F_CREATE|unix.NLM_F_REPLACE|unix.NLM_F_ACK, familyOf(addr), uint8(flags|netlink.NTF_USE), addr)
	if extended != 0 {
		request.AddData(nl.NewRtAttr(netlink.NDA_FLAGS_EXT, nl.Uint32Attr(uint32(extended))))
	}
	if ours {
		request.AddData(nl.NewRtAttr(netlink.NDA_PROTOCOL, []byte{owner}))
	}
	_, err := request.Execute(unix.NETLINK_ROUTE, 0)
	return err
}

// release lets go of the neighbours that were held, by this process or a process before it, and are not to be. Where not
// all are known that are to be, it lets go of none.
func (w *Watcher) release(held map[netip.Addr]bool, known bool) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.held == nil {
		before, err := w.labelled()
		if err != nil {
			return err
		}
		w.held = before
	}
	if !known {
		maps.Copy(w.held, held)
		return nil
	}
	var errs []error
	for addr := range w.held {
		if e := w.find(addr); !held[addr] && e.owner == owner && e.held() {
			errs = append(errs, w.set(addr, 0, 0, false))
		}
	}
	w.held = held
	return errors.Join(errs...)
}

// labelled are the neighbours of the link that the kernel shows as ours.
func (w *Watcher) labelled() (map[netip.Addr]bool, error) {
	ours := map[netip.Addr]bool{}
	for _, family := range families() {
		messages, err := w.request(unix.RTM_GETNEIGH, unix.NLM_F_DUMP, family, 0, netip.Addr{}).Execute(unix.NETLINK_ROUTE, unix.RTM_NEWNEIGH)
		if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
			return nil, fmt.Errorf("list neighbours of %s: %w", w.dev.Name, err)
		}
		for _, m := range messages {
			e, err := entryOf(m)
			if err == nil && int(binary.NativeEndian.Uint32(m[4:])) == w.dev.Index && e.owner == owner {
				ours[e.addr] = true
			}
		}
	}
	return ours, nil
}
