package nexthop

import (
	"encoding/binary"
	"fmt"
	"slices"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// receiveBuffer holds the messages of some 20,000 routes that change at once. The kernel
// drops messages that find no room, and the next reading of the socket fails (ENOBUFS).
const receiveBuffer = 8 << 20

// subscribe opens a subscription to changes of routes, rules, nexthop objects, neighbours and
// links, in the network namespace of the calling thread.
func (w *Watcher) subscribe() error {
	s, err := nl.Subscribe(unix.NETLINK_ROUTE, unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV6_ROUTE, unix.RTNLGRP_NEIGH, unix.RTNLGRP_LINK,
		unix.RTNLGRP_IPV4_RULE, unix.RTNLGRP_IPV6_RULE, unix.RTNLGRP_NEXTHOP)
	if err != nil {
		return fmt.Errorf("watch routes and neighbours: %w", err)
	}
	if err := s.SetReceiveBufferSize(w.buffer, true); err != nil { // without CAP_NET_ADMIN
		if err := s.SetReceiveBufferSize(w.buffer, false); err != nil {
			s.Close()
			return fmt.Errorf("size the buffer for routes and neighbours: %w", err)
		}
	}
	w.socket = s
	go w.receive(s)
	return nil
}

// receive notes the changes of a subscription until it fails, which is a change, too: the
// reading that follows subscribes again.
func (w *Watcher) receive(s *nl.NetlinkSocket) {
	for {
		messages, _, err := s.Receive()
		if err != nil {
			w.lose(s, err)
			return
		}
		routes, others := false, false
		for _, m := range messages {
			switch m.Header.Type {
			case unix.RTM_NEWROUTE, unix.RTM_DELROUTE:
				routes = routes || isOurFamily(m)
			case unix.RTM_NEWNEIGH, unix.RTM_DELNEIGH:
				others = others || w.isOurLink(m) && w.isNews(m)
			case unix.RTM_NEWLINK, unix.RTM_DELLINK: // its routes may be dead now, or not any more
				routes = routes || w.isOurLink(m)
			case unix.RTM_NEWRULE, unix.RTM_DELRULE, unix.RTM_NEWNEXTHOP, unix.RTM_DELNEXTHOP:
				routes = true
			}
		}
		if routes {
			w.routesChanged()
		} else if others {
			w.signal()
		}
	}
}

func isOurFamily(m syscall.NetlinkMessage) bool {
	return len(m.Data) > 0 && slices.Contains(families(), int(m.Data[0]))
}

// isNews reports whether a message of a neighbour changes where packets go. Most do not: the kernel
// has confirmed a neighbour, or doubts it.
func (w *Watcher) isNews(m syscall.NetlinkMessage) bool {
	n, err := netlink.NeighDeserialize(m.Data)
	if err != nil {
		return true
	}
	addr, mac, is := usableOf(n)
	if !addr.IsValid() {
		return false
	}
	is = is && m.Header.Type == unix.RTM_NEWNEIGH
	w.mu.Lock()
	defer w.mu.Unlock()
	known, was := w.known[alone(addr)]
	return is != was || is && mac != known
}

// isOurLink reads struct ndmsg or ifinfomsg, with the number of the link at byte 4.
func (w *Watcher) isOurLink(m syscall.NetlinkMessage) bool {
	return len(m.Data) >= 8 && int(binary.NativeEndian.Uint32(m.Data[4:])) == w.dev.Index
}

// lose ends a subscription that failed.
func (w *Watcher) lose(s *nl.NetlinkSocket, err error) {
	s.Close()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed || w.socket != s {
		return
	}
	w.socket, w.stale = nil, true
	w.log.Warn("changes of routes or neighbours were lost: all are read again", "error", err)
	w.signalAt(w.notBefore)
}

// routesChanged makes the next reading include the routes, once they may be read again.
func (w *Watcher) routesChanged() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stale = true
	w.signalAt(w.notBefore)
}

// signalAt signals a change now, or later.
func (w *Watcher) signalAt(at time.Time) {
	wait := time.Until(at)
	switch {
	case wait <= 0:
		w.signal()
	case !w.later:
		w.later = true
		time.AfterFunc(wait, func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.later = false
			w.signal()
		})
	}
}

// signal signals a change that is pending until the next reading.
func (w *Watcher) signal() {
	select {
	case w.changes <- struct{}{}:
	default:
	}
}
