package bench

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	inkernel "proffer/dataplane/bench"
	"proffer/lab/farmrun"
	"proffer/table"
	"proffer/topo"
	"proffer/wire"
)

// mode is a service with packets to measure.
type mode struct {
	name     string
	dispatch topo.Dispatch
	wire     topo.Wire
	vip      netip.Addr
}

// modes are all ways to dispatch, by each wire and address family.
func modes() (modes []mode) {
	for i, d := range []topo.Dispatch{topo.Hunt, topo.Single, topo.Stateless} {
		vip6, vip4 := fmt.Sprintf("2001:db8:f::%d", 2*i+1), fmt.Sprintf("203.0.113.%d", i+1)
		inserted := fmt.Sprintf("2001:db8:f::%d", 2*i+2)
		modes = append(modes,
			mode{d.String(), d, topo.Encap, netip.MustParseAddr(vip6)},
			mode{d.String() + "-insert", d, topo.Insert, netip.MustParseAddr(inserted)},
			mode{d.String() + "-ipv4", d, topo.Encap, netip.MustParseAddr(vip4)})
	}
	return append(modes, mode{topo.Learned.String(), topo.Learned, topo.Encap, netip.MustParseAddr("2001:db8:f::7")})
}

const (
	device        = "bench0"
	benchServers  = 64
	benchServices = 100
	choices       = 2
	smallTable    = 251 // buckets of the services that are only there
)

var (
	mac    = topo.MAC{2, 0, 0, 0, 0, 0x11}
	lbSelf = netip.MustParsePrefix("5f00:0:0:1::/64")
)

func benchServer(i int) netip.Prefix {
	return netip.MustParsePrefix(fmt.Sprintf("5f00:0:1:%x::/64", i))
}

// serviceList is the modes' services and as many others as an LB may have.
func serviceList() (services []topo.Service) {
	var servers []topo.Server
	for i := range benchServers {
		servers = append(servers, topo.Server{Name: fmt.Sprint("s", i), Locator: benchServer(i), Weight: 1})
	}
	for _, m := range modes() {
		services = append(services, topo.Service{
			Name: m.name, VIP: topo.VIP{Addr: m.vip, Port: port}, Dispatch: m.dispatch, Wire: m.wire,
			Choices: choices, Buckets: table.DefaultBuckets, Servers: servers,
		})
	}
	for i := len(services); i < min(benchServices, topo.MaxServices); i++ {
		vip := netip.MustParseAddr(fmt.Sprintf("2001:db8:f:1::%x", i))
		if i%2 == 0 {
			vip = netip.MustParseAddr(fmt.Sprintf("203.0.113.%d", i))
		}
		services = append(services, topo.Service{
			Name: fmt.Sprint("other", i), VIP: topo.VIP{Addr: vip, Port: 443}, Dispatch: topo.Hunt,
			Choices: choices, Buckets: smallTable, Servers: servers,
		})
	}
	return services
}

// The uses of loaded LBs.
const (
	lbKnown     = "known"      // flows that stay known throughout, on many servers
	lbKept      = "kept"       // the same, of modes in which clients' packets make the entries, and of hunt beside them
	lbOneServer = "one server" // the same, on one server: it signals
	lbEmpty     = "empty"      // between two runs
	lbFull      = "full"       // of flows without an answer from their clients
	lbSigned    = "signed"     // the farm has signal keys
)

// lbBench is an LB in a bench.
type lbBench struct {
	*inkernel.LB
	keys  []topo.SignalKey
	cfg   *topo.LB
	hops  topo.NextHops
	known map[string]uint32          // flows of each mode that it has
	fresh uint32                     // number of the next unused flow
	tags  map[wire.Function][]uint64 // of each function's signals
}

// lb loads an LB for a purpose, once.
func (s *session) lb(purpose string) (l *lbBench, err error) {
	if l = s.lbs[purpose]; l != nil {
		return l, nil
	}
	switch purpose {
	case lbKnown:
		l, err = newLBBench(s.knownEntries())
	case lbKept: // half full at most: in a fuller one embryonic entries of a piece meet each other
		l, err = newLBBench(2*(s.knownEntries()+min(s.most(), othersAtMost)) + insertEntries/4)
	case lbOneServer:
		l, err = newLBBench(othersAtMost * 5 / 4)
	case lbSigned:
		l, err = newLBBench(insertEntries, farmrun.SignalKey)
	default:
		l, err = newLBBench(insertEntries)
	}
	if err != nil {
		return nil, err
	}
	s.lbs[purpose] = l
	s.open = append(s.open, l)
	if purpose != lbKnown && purpose != lbKept {
		err = l.signalledBy(1)
	}
	return l, err
}

// newLBBench loads an LB with a table that has room for so many flows.
func newLBBench(entries int, keys ...topo.SignalKey) (*lbBench, error) {
	cfg := &topo.LB{
		Node:         topo.Node{Name: "lb", Locator: lbSelf, Interface: device, Keys: keys},
		CandidateKey: farmrun.CandidateKey,
		// Closed flows are swept at once, so that a table can be filled again.
		Flows:    topo.FlowTable{Entries: entries, Idle: time.Hour, Linger: 1},
		Services: serviceList(),
	}
	tags := 0
	if len(keys) > 0 {
		tags = benchMade
	}
	l, err := inkernel.NewLB(cfg, tags)
	if err != nil {
		return nil, err
	}
	hops := topo.NextHops{ // clients are anywhere, servers are not
		netip.PrefixFrom(netip.IPv6Unspecified(), 0): {2, 0, 0, 0, 0, 0xfe},
		netip.PrefixFrom(netip.IPv4Unspecified(), 0): {2, 0, 0, 0, 0, 0xfe},
	}
	for i := range benchServers {
		hops[benchServer(i)] = topo.MAC{2, 0, 0, 0, 1, byte(i)}
	}
	if err := l.SetNextHops(hops); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return &lbBench{l, keys, cfg, hops, map[string]uint32{}, 1 << 29, map[wire.Function][]uint64{}}, nil
}

// knownEntries is the size of the table of those flows that are known throughout.
func (s *session) knownEntries() int {
	most := s.most()
	others := 0
	for i, m := range modes() {
		if i > 0 && m.dispatch.Signals() {
			others += min(most, othersAtMost)
		}
	}
	return max((most+others)*5/4, 1024)
}

// know makes an LB have flows 0 to n-1 of a mode: their servers say so in data,
// which is how an LB learns of flows that it has not seen begin.
func (s *session) know(l *lbBench, m mode, n uint32) error {
	if !m.dispatch.Tracks() {
		return nil
	}
	if m.dispatch.Keeps() {
		return s.keep(l, m, n)
	}
	if err := l.signalledBy(benchServers); err != nil {
		return err
	}
	for server := 0; l.known[m.name] < n; server++ {
		first := l.known[m.name]
		// Ever larger pieces, so that few flows are on many servers, too.
		count := min(max(first/8, 1), n-first)
		p := l.fromServer(m, server%benchServers, wire.CreateStickiness, wire.ACK, int(count), isRecovered)
		p.drill.First = first
		if err := s.untimed(p); err != nil {
			return err
		}
		l.known[m.name] += count
	}
	return l.signalledBy(0)
}

// signalledBy makes the first n servers members of every bucket, which may signal about any flow:
// each was alone in a pool.
func (l *lbBench) signalledBy(n int) error {
	cfg := *l.cfg
	cfg.Services = slices.Clone(cfg.Services)
	for i := range len(modes()) {
		s := &cfg.Services[i]
		s.History = nil
		for k := range n {
			s.History = append(s.History, topo.Version{Version: n - k, Servers: s.Servers[k : k+1]})
		}
	}
	if err := l.Configure(&cfg); err != nil {
		return err
	}
	return l.SetNextHops(l.hops)
}

// keep is know of a mode in which the clients' own packets make the entries: in pieces, as
// embryonic entries give way to each other.
func (s *session) keep(l *lbBench, m mode, n uint32) error {
	piece := max(n/256, 16)
	for l.known[m.name] < n {
		count := min(piece, n-l.known[m.name])
		passes := []pass{l.fromClient(m, wire.SYN, int(count), isBegun), l.fromClient(m, wire.ACK, int(count), isEstablished)}
		if m.dispatch.Learns() { // until the second packet of data the entry may give way
			passes = append(passes, l.fromClient(m, wire.ACK, int(count), counts{"steer": 1}))
		}
		for _, p := range passes {
			p.drill.First = l.known[m.name]
			if err := s.untimed(p); err != nil {
				return err
			}
		}
		l.known[m.name] += count
	}
	return nil
}

var (
	isBegun       = counts{"deliver": 1, "flow_begun": 1}
	isEstablished = counts{"steer": 1, "flow_established": 1}
)

// home is the LB that has the mode's known flows.
func (m *mode) home() string {
	if m.dispatch.Keeps() {
		return lbKept
	}
	return lbKnown
}

// known are the counts of data of a flow that the LB knows.
func (m *mode) known() counts {
	if !m.dispatch.Tracks() {
		return counts{"deliver": 1}
	}
	return counts{"steer": 1}
}

// unused returns the first of n unused numbers of flows.
func (l *lbBench) unused(n int) uint32 {
	first := l.fresh
	l.fresh += uint32(n)
	return first
}

// fromClient is packets of clients.
func (l *lbBench) fromClient(m mode, flags byte, packets int, want counts) pass {
	return pass{in: l, drill: m.fromClient(flags), packets: packets, want: want, verdict: xdpTX}
}

// fromServer is signals of a server.
func (l *lbBench) fromServer(m mode, server int, function wire.Function, flags byte, packets int, want counts) pass {
	key := uint8(0)
	if len(l.keys) > 0 {
		key = l.keys[0].ID
	}
	return pass{in: l, drill: m.fromServer(server, function, flags, key), packets: packets, want: want, verdict: xdpTX}
}

// fromClient is a client's packet.
func (m *mode) fromClient(flags byte) inkernel.Drill {
	s := segment{client: benchClient(m.family()), vip: m.vip, flags: flags, seq: isn}
	if flags != wire.SYN {
		s.seq, s.ack, s.payload = isn+1, away+1, benchBytes/4
	}
	address, port := s.atClient()
	d := inkernel.Drill{
		Step:    inkernel.Step{Frame: framed(mac, s.packet()), Address: wire.EthernetBytes + address, Port: wire.EthernetBytes + port},
		Changed: 32, // the hop, and the bytes that an outer header replaces
		Flags:   wire.EthernetBytes + s.ipBytes() + 13,
	}
	if m.wire == topo.Insert {
		d.Changed = 64
	}
	return d
}

func (m *mode) family() int {
	if m.vip.Is4() {
		return 4
	}
	return 6
}

// fromServer is a server's answer in a signal.
func (m *mode) fromServer(server int, function wire.Function, flags byte, key uint8) inkernel.Drill {
	s := segment{client: benchClient(m.family()), vip: m.vip, outward: true, flags: flags, seq: away, ack: isn + 1}
	if flags&wire.SYN != 0 {
		s.options = synOptions
	} else {
		s.seq, s.payload = away+1, benchBytes/4
	}
	to, from := sid(lbSelf, function, key), wire.Own(benchServer(server))
	address, port := s.atClient()
	if m.wire == topo.Insert {
		return inkernel.Drill{Changed: 160, Step: inkernel.Step{
			Frame:   framed(mac, wire.Route{From: from, Segments: []netip.Addr{to}}.Insert(s.packet())),
			Address: wire.EthernetBytes + wire.IPv6Bytes + wire.SRHBytes + wire.SegmentBytes - 2, // the last segment
			Port:    wire.EthernetBytes + wire.IPv6Bytes + wire.SRHBytes + 3*wire.SegmentBytes + 2,
		}}
	}
	d := inkernel.Drill{
		Changed: wire.EthernetBytes + wire.IPv6Bytes + 8, // to the hop limit
		Step: inkernel.Step{
			Frame:   framed(mac, wire.Route{From: from, Segments: []netip.Addr{to}, HopLimit: wire.DefaultHopLimit}.Encap(s.packet())),
			Address: wire.EthernetBytes + wire.IPv6Bytes + address,
			Port:    wire.EthernetBytes + wire.IPv6Bytes + port,
		},
	}
	if m.vip.Is4() { // to the checksum
		d.Changed += 4
	}
	if flags&wire.SYN != 0 { // its MSS is lowered
		d.Changed = 160
	}
	return d
}

// synOptions are those of Linux: MSS, SACK, timestamps, window scale.
var synOptions = []byte{2, 4, 0x05, 0xa0, 4, 2, 8, 10, 0, 0, 0, 1, 0, 0, 0, 1, 1, 3, 3, 7}

// tags signs the signals of a server about flows 0 … n-1.
func (m *mode) tags(key topo.SignalKey, server int, function wire.Function, n int) []uint64 {
	locator := benchServer(server)
	own := wire.ServerKey(key.Server, locator)
	to := []netip.Addr{sid(lbSelf, function, key.ID)}
	tags := make([]uint64, n)
	for i := range tags {
		tag := wire.Tag(own, flow(uint32(i), m.vip), locator, to)
		tags[i] = binary.NativeEndian.Uint64(tag[:])
	}
	return tags
}
