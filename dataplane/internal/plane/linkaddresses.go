package plane

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"proffer/topo"
)

// addressesOf are the other unicast addresses that this host has at links, as the programs look them up:
//
//   - those of macvlans above, which are up;
//   - those that an operator gave the link (`ip maddr`);
//   - virtual routers' (RFC 9568 §7.3) among the addresses that the link lets in (`bridge fdb`), such as that of a
//     macvlan in another namespace.
//
// Other addresses that the link lets in are unclear, as their hosts are out of sight. Where packets are left to the
// kernel (leaves), macvlans' count alone, as it takes frames for no other address. Addresses of upper links that are
// no hosts of packets for us are neither: a macvtap is a virtual machine's, a macvlan at a bridge serves hosts behind
// it, and in mode source the sender decides.
func addressesOf(links []*net.Interface, leaves bool) (found map[uint64]uint8, unclear map[uint64]bool, err error) {
	found, unclear = map[uint64]uint8{}, map[uint64]bool{}
	others, err := above(links, found)
	if err != nil {
		return nil, nil, err
	}
	given, err := givenTo(links)
	if err != nil {
		return nil, nil, err
	}
	let, err := letIn(links)
	if err != nil {
		return nil, nil, err
	}
	slices.Sort(let)
	for _, address := range append(given, let...) {
		own := addressOf(address).String() == links[address>>48].HardwareAddr.String()
		switch _, known := found[address]; {
		case known || others[address] || own:
		case !leaves && (slices.Contains(given, address) || isVirtualRouter(address)) && len(found) < mostServed:
			found[address] = 1
		default:
			unclear[address] = true
		}
	}
	return found, unclear, nil
}

// isVirtualRouter is true of the addresses of RFC 9568 §7.3, of IPv4 and of IPv6.
func isVirtualRouter(address uint64) bool {
	a := addressOf(address)
	return bytes.HasPrefix(a, []byte{0, 0, 0x5e, 0, 1}) || bytes.HasPrefix(a, []byte{0, 0, 0x5e, 0, 2})
}

// above adds the addresses of macvlans above links, and returns those of other links above.
func above(links []*net.Interface, found map[uint64]uint8) (others map[uint64]bool, err error) {
	others = map[uint64]bool{}
	for _, kind := range []string{"macvlan", "macvtap"} {
		all, err := linksOfKind(kind)
		if err != nil {
			return nil, err
		}
		for _, l := range all {
			a := l.Attrs()
			at := slices.IndexFunc(links, func(on *net.Interface) bool { return on.Index == a.ParentIndex })
			if at < 0 || a.NetNsID >= 0 || len(a.HardwareAddr) != len(topo.MAC{}) || a.HardwareAddr.String() == links[at].HardwareAddr.String() {
				continue
			}
			key := addressKey(a.HardwareAddr, at)
			if v, is := l.(*netlink.Macvlan); is && v.Mode != netlink.MACVLAN_MODE_SOURCE && a.Flags&net.FlagUp != 0 && a.MasterIndex == 0 && len(found) < mostServed {
				found[key] = 1
			} else {
				others[key] = true
			}
		}
	}
	return others, nil
}

// linksOfKind lists the links of a kind alone.
func linksOfKind(name string) (all []netlink.Link, err error) {
	request := nl.NewNetlinkRequest(unix.RTM_GETLINK, unix.NLM_F_DUMP)
	request.AddData(nl.NewIfInfomsg(unix.AF_UNSPEC))
	kind := nl.NewRtAttr(unix.IFLA_LINKINFO, nil)
	kind.AddRtAttr(nl.IFLA_INFO_KIND, nl.NonZeroTerminated(name))
	request.AddData(kind)
	messages, err := request.Execute(unix.NETLINK_ROUTE, unix.RTM_NEWLINK)
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
		return nil, fmt.Errorf("list the links of kind %s: %w", name, err)
	}
	for _, m := range messages {
		l, err := netlink.LinkDeserialize(nil, m)
		if err != nil {
			return nil, fmt.Errorf("read a link of kind %s: %w", name, err)
		}
		all = append(all, l)
	}
	return all, nil
}

// letIn are the unicast addresses that links have in their lists (dev_uc_add), as `bridge fdb` shows them. A link that
// has a table of other hosts, such as a VXLAN's, names where these are.
func letIn(links []*net.Interface) (all []uint64, err error) {
	for at, on := range links {
		request := nl.NewNetlinkRequest(unix.RTM_GETNEIGH, unix.NLM_F_DUMP)
		head := nl.NewIfInfomsg(unix.AF_BRIDGE)
		head.Index = int32(on.Index) // the kernel lists this link's alone
		request.AddData(head)
		messages, err := request.Execute(unix.NETLINK_ROUTE, unix.RTM_NEWNEIGH)
		if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
			return nil, fmt.Errorf("list the addresses of %s: %w", on.Name, err)
		}
		for _, m := range messages {
			n, err := netlink.NeighDeserialize(m)
			isOwn := err == nil && n.LinkIndex == on.Index && n.Flags&netlink.NTF_SELF != 0 && n.IP == nil && n.MasterIndex == 0
			if isOwn && len(n.HardwareAddr) == len(topo.MAC{}) && isUnicast(n.HardwareAddr) {
				all = append(all, addressKey(n.HardwareAddr, at))
			}
		}
	}
	return all, nil
}

func isUnicast(mac net.HardwareAddr) bool {
	return mac[0]&1 == 0 && slices.ContainsFunc(mac, func(b byte) bool { return b != 0 })
}

// givenTo are the unicast addresses among those that `ip maddr` gave to links: a group's list, to which the kernel
// itself adds no such address.
func givenTo(links []*net.Interface) (all []uint64, err error) {
	text, err := os.ReadFile("/proc/thread-self/net/dev_mcast")
	if err != nil {
		return nil, fmt.Errorf("list the addresses that links were given: %w", err)
	}
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		var number, users, global int
		var name, address string
		if n, _ := fmt.Sscan(lines.Text(), &number, &name, &users, &global, &address); n < 5 {
			continue
		}
		mac, err := hex.DecodeString(address)
		at := slices.IndexFunc(links, func(on *net.Interface) bool { return on.Index == number })
		if err == nil && at >= 0 && len(mac) == len(topo.MAC{}) && isUnicast(mac) {
			all = append(all, addressKey(mac, at))
		}
	}
	return all, nil
}
