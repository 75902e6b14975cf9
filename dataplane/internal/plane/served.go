package plane

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"proffer/dataplane/objects"
	"proffer/topo"
)

// Served are the other unicast link addresses that the programs take frames for, as the kernel does
// (bpf/packet/link_addresses.h), and those that frames came for with packets for us all the same.
type Served struct {
	served, strangers *ebpf.Map

	mu      sync.Mutex
	known   map[uint64]uint8
	packets [16]uint64           // of each place of strangers, at the last look
	met     map[uint64]time.Time // when a packet came last
}

// metFor is how long advice about a stranger stays.
const metFor = time.Minute

// NewServed looks for the addresses of links, which have the numbers of their places.
func NewServed(served, strangers *ebpf.Map, links ...*net.Interface) (*Served, error) {
	s := &Served{served: served, strangers: strangers, known: map[uint64]uint8{}, met: map[uint64]time.Time{}}
	_, err := s.Follow(links...)
	return s, err
}

// Follow gives the programs the addresses of now, and returns the changes.
func (s *Served) Follow(links ...*net.Interface) (changed string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	want, err := above(links)
	if err != nil {
		return "", err
	}
	var changes []string
	for address := range want {
		if _, is := s.known[address]; !is {
			changes = append(changes, fmt.Sprintf("frames for %v are taken", addressOf(address)))
		}
	}
	for address := range s.known {
		if _, is := want[address]; !is {
			changes = append(changes, fmt.Sprintf("frames for %v are not taken any more", addressOf(address)))
		}
	}
	slices.Sort(changes)
	if err = Update(s.served, s.known, want); err == nil {
		_, err = Prune(s.served, s.known, want)
	}
	if err != nil {
		return "", fmt.Errorf("write the other addresses of %s: %w", links[0].Name, err)
	}
	return strings.Join(changes, ", "), s.meet()
}

// meet notes the strangers that packets came for since the last look. Frames for a group are no stranger's.
func (s *Served) meet() error {
	var i uint32
	var r objects.LBStranger
	all := s.strangers.Iterate()
	for all.Next(&i, &r) {
		if s.packets[i] != r.Packets && r.Address&1 == 0 {
			s.met[r.Address] = time.Now()
		}
		s.packets[i] = r.Packets
	}
	maps.DeleteFunc(s.met, func(_ uint64, at time.Time) bool { return time.Since(at) > metFor })
	if err := all.Err(); err != nil {
		return fmt.Errorf("read the addresses of frames for other hosts: %w", err)
	}
	return nil
}

// Advice names the addresses that frames came for of late, of links in the order of Follow.
func (s *Served) Advice(links ...*net.Interface) (advice []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, address := range slices.Sorted(maps.Keys(s.met)) {
		at := int(address >> 48)
		if _, is := s.known[address]; is || at >= len(links) {
			continue
		}
		advice = append(advice, fmt.Sprintf("packets for this node come to %s for the link address %v, and are not taken: %[1]s has %v, and no macvlan above it here has that one. A virtual router's needs such a macvlan that is up; if it is another host's, %[1]s sees frames that are not its own",
			links[at].Name, addressOf(address), links[at].HardwareAddr))
	}
	return advice
}

// above are the addresses of the macvlans above links, as the programs look them up. Others with a link below are no
// hosts of packets for us: a macvtap is a virtual machine's, a macvlan at a bridge serves hosts behind it, and one in
// another namespace is a container's, which is out of sight. In mode source the sender decides.
func above(links []*net.Interface) (map[uint64]uint8, error) {
	found := map[uint64]uint8{}
	request := nl.NewNetlinkRequest(unix.RTM_GETLINK, unix.NLM_F_DUMP)
	request.AddData(nl.NewIfInfomsg(unix.AF_UNSPEC))
	kind := nl.NewRtAttr(unix.IFLA_LINKINFO, nil) // for the kernel to list these alone
	kind.AddRtAttr(nl.IFLA_INFO_KIND, nl.NonZeroTerminated("macvlan"))
	request.AddData(kind)
	messages, err := request.Execute(unix.NETLINK_ROUTE, unix.RTM_NEWLINK)
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
		return nil, fmt.Errorf("list the macvlans: %w", err)
	}
	for _, m := range messages {
		l, err := netlink.LinkDeserialize(nil, m)
		if err != nil {
			return nil, fmt.Errorf("read a macvlan: %w", err)
		}
		v, is := l.(*netlink.Macvlan)
		if !is || v.Mode == netlink.MACVLAN_MODE_SOURCE || v.Flags&net.FlagUp == 0 || v.MasterIndex != 0 || v.NetNsID >= 0 || len(v.HardwareAddr) != len(topo.MAC{}) {
			continue
		}
		for at, on := range links {
			if v.ParentIndex == on.Index && v.HardwareAddr.String() != on.HardwareAddr.String() && len(found) < mostServed {
				found[addressKey(v.HardwareAddr, at)] = 1
			}
		}
	}
	return found, nil
}

const mostServed = 64 // MAX_SERVED

func addressKey(mac net.HardwareAddr, link int) uint64 {
	return binary.LittleEndian.Uint64(append(slices.Clone([]byte(mac)), byte(link), 0))
}

func addressOf(key uint64) net.HardwareAddr {
	return binary.LittleEndian.AppendUint64(nil, key)[:6]
}
