package plane

import (
	"encoding/binary"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cilium/ebpf"

	"proffer/dataplane/objects"
)

// Served are the other unicast link addresses that the programs take frames for, as the kernel does
// (bpf/packet/link_addresses.h), and those that frames came for with packets for us all the same.
type Served struct {
	served, strangers *ebpf.Map
	leaves            bool // the packets go to the kernel

	mu      sync.Mutex
	known   map[uint64]uint8
	unclear map[uint64]bool      // addresses that the links let in, for hosts out of sight
	packets [16]uint64           // of each place of strangers, at the last look
	met     map[uint64]time.Time // when a packet came last
}

// metFor is how long advice about a stranger stays.
const metFor = time.Minute

// NewServed looks for the addresses of links, which have the numbers of their places. leaves: the programs leave packets
// for us to the kernel.
func NewServed(served, strangers *ebpf.Map, leaves bool, links ...*net.Interface) (*Served, error) {
	s := &Served{served: served, strangers: strangers, leaves: leaves, known: map[uint64]uint8{}, met: map[uint64]time.Time{}}
	_, err := s.Follow(links...)
	return s, err
}

// Follow gives the programs the addresses of now, and returns the changes.
func (s *Served) Follow(links ...*net.Interface) (changed string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	want, unclear, err := addressesOf(links, s.leaves)
	if err != nil {
		return "", err
	}
	s.unclear = unclear
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
		if _, is := s.known[address]; is || at >= len(links) || addressOf(address).String() == links[at].HardwareAddr.String() {
			continue
		}
		why := fmt.Sprintf("no macvlan above it here has that one. A virtual router's needs such a macvlan that is up; if it is another host's, %s sees frames that are not its own", links[at].Name)
		if s.unclear[address] && !s.leaves {
			why = "lets frames for that one in, for whom is out of sight: a macvlan in another namespace, or `bridge fdb`. If they are for this host: `ip maddr add " + addressOf(address).String() + " dev " + links[at].Name + "`"
		}
		advice = append(advice, fmt.Sprintf("packets for this node come to %s for the link address %v, and are not taken: %[1]s has %[3]v, and %[4]s",
			links[at].Name, addressOf(address), links[at].HardwareAddr, why))
	}
	return advice
}

const mostServed = 64 // MAX_SERVED

func addressKey(mac net.HardwareAddr, link int) uint64 {
	return binary.LittleEndian.Uint64(append(slices.Clone([]byte(mac)), byte(link), 0))
}

func addressOf(key uint64) net.HardwareAddr {
	return binary.LittleEndian.AppendUint64(nil, key)[:6]
}
