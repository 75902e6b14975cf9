// Package topo holds the nouns of a Proffer farm: services, servers and load
// balancers, as the configuration states them and the data plane runs them.
// Every other package speaks in these types; this one imports nothing of ours.
package topo

// The values of its enums and its limits are those of the C programs.
//
//go:generate go run ../dataplane/internal/constants ../bpf

import (
	"net/netip"
	"strings"
	"time"
)

// Node is a machine of the SR domain.
type Node struct {
	Name      string
	Locator   netip.Prefix // 64 bits; every SID of the node lies inside (RFC 8986 §3.1)
	Interface string       // the link that the programs are attached to
	Control   string       // unix socket that answers `proffer status`
	Pin       string       // bpffs directory where links and flows outlive the daemon

	// Domain holds the prefixes of the SR domain. When there are any, SR packets
	// with an outer source elsewhere are dropped.
	Domain []netip.Prefix
	// Keys sign and check signals; the first signs. Empty: signals carry no tag.
	// KeyFile is where they come from.
	Keys    []SignalKey
	KeyFile string

	// Near are other nodes of the farm by their locators: where the address is on the link, packets for the
	// locator go to that neighbour, and need no route.
	Near []Neighbour
}

// Neighbour is a node that may be on the link.
type Neighbour struct {
	Locator netip.Prefix
	Addr    netip.Addr
	LB      bool
}

// SignalKey is a generation of the keys that authenticate signals.
type SignalKey struct {
	ID   uint8 // 1 to 255; 0 on the wire means "no tag"
	Farm Key   // LB → servers
	// Server → LB. At an LB the master of all, at a server its own: derived from
	// the master, so that no server can speak for another.
	Server Key
}

// Server is a host that takes flows of a service.
type Server struct {
	Name     string
	Delivery Delivery
	Locator  netip.Prefix // of deliveries over SRv6
	Address  netip.Addr   // of the others
	VNI      int          // ByVXLAN: the network that the server's device has
	MAC      MAC          // ByVXLAN: link address of that device
	Weight   int          // its share of new flows; 0 drains it
}

// Protocol of a service.
type Protocol uint8

const (
	TCP Protocol = iota
	UDP
)

func (p Protocol) String() string { return [...]string{"tcp", "udp"}[p] }

// Number is the protocol's in an IP header (IANA).
func (p Protocol) Number() uint8 { return [...]uint8{6, 17}[p] }

// VIP is the address of a service.
type VIP struct {
	Addr     netip.Addr // IPv6, or IPv4
	Port     uint16
	Protocol Protocol
}

// String is [addr]:port, with the protocol before it if that is not TCP.
func (v VIP) String() string {
	at := netip.AddrPortFrom(v.Addr, v.Port).String()
	if v.Protocol == TCP {
		return at
	}
	return v.Protocol.String() + " " + at
}

// Select is how the lists of candidates come about. Either way they are one
// table of Buckets lists, the same at every LB.
type Select uint8

const (
	Hash   Select = iota // consistent hashing: 6LB Algorithm 3
	Random               // each list drawn at random: SRLB
)

func (s Select) String() string { return [...]string{"hash", "random"}[s] }

// Wire is how segments travel with a packet.
type Wire uint8

func (w Wire) String() string {
	return [...]string{
		Encap:  "encap",  // an outer header: RFC 8986 H.Encaps.Red
		Insert: "insert", // the papers': an SRH inside the client's own IPv6 packet
	}[w]
}

// Fragments is the treatment of IP fragments, which carry no ports but the first.
type Fragments uint8

func (f Fragments) String() string {
	return [...]string{
		DropFragments: "drop",
		HashFragments: "hash", // the service's packets are all hashed by addresses alone
	}[f]
}

// Recovery is how an LB finds the server of a flow without an entry, where the client's
// own packets make the entries.
type Recovery uint8

func (r Recovery) String() string {
	return [...]string{
		HistoryRecovery: "history", // the server that the pools before name
		AgentsRecovery:  "agents",  // the owner, which all its servers' agents know
	}[r]
}

// Affinity is what ties new connections to the server of earlier connections.
type Affinity uint8

// Values of Affinity.
const (
	NoAffinity     Affinity = iota
	ClientAffinity          // they have one client
)

func (a Affinity) String() string { return [...]string{"none", "client"}[a] }

// Version is the pool of a service as it once was.
type Version struct {
	Version int
	Servers []Server
}

// Service is a VIP as an LB sees it.
type Service struct {
	Name      string
	VIP       VIP
	Dispatch  Dispatch
	Select    Select
	Buckets   int // lists in the table (6LB's M); never changes while flows live
	Choices   int // candidates an offer carries; fewer when there are fewer servers
	Wire      Wire
	Via       []netip.Addr // transit SIDs before the candidates
	Fragments Fragments
	Recovery  Recovery
	Affinity  Affinity
	// AffinityTime is how long a client may be silent.
	AffinityTime time.Duration
	Allow        []netip.Prefix // of the clients that are served; none: all are
	// LearnEvery is the time between two steps of learning.
	LearnEvery time.Duration
	Servers    []Server // sorted by Server.At
	Version    int      // of Servers

	// History holds the pools before this pool, the newest first: the horizon
	// within which a flow is recovered. Shared by all LBs with the rest.
	History []Version
}

// Key is a 128-bit secret.
type Key [16]byte

// MaxAge is the longest time without packets that an LB may be configured to wait for.
const MaxAge = MaxAgeS * time.Second

// FlowTable bounds the flows one node remembers.
type FlowTable struct {
	Entries int
	Idle    time.Duration // an entry without packets for this long is stale
	Linger  time.Duration // how long an entry outlives the close of both directions

	// Embryonic is the number of flows in their handshake that an agent's table has
	// room for beside Entries. Only embryonic entries make room for new flows.
	Embryonic int
}

// tcpIdle is how long a TCP connection may be silent at the least (RFC 5382 REQ-5): two hours until its
// first keep-alive (RFC 1122 §4.2.3.6), and four minutes.
const tcpIdle = 2*time.Hour + 4*time.Minute

// IdleTCP is Idle of an open TCP connection that is lost with its entry.
func (f *FlowTable) IdleTCP() time.Duration { return max(f.Idle, tcpIdle) }

// Silence is how long a flow may be silent and live on.
func (f *FlowTable) Silence(p Protocol) time.Duration {
	if p == TCP {
		return f.IdleTCP()
	}
	return f.Idle
}

// LB is all that a load balancer runs on.
type LB struct {
	Node
	CandidateKey Key    // farm-wide and never rotated: it decides every list
	State        string // the file that records the pools that were served
	Flows        FlowTable
	Services     []Service
}

// OnFull is the last candidate's answer when its accept queue is full.
type OnFull uint8

func (o OnFull) String() string {
	return [...]string{
		Reset: "rst",  // as the papers' tcp_abort_on_overflow meant
		Drop:  "drop", // leave the client to retransmit
	}[o]
}

// Owner is where an agent looks up the owner of a flow.
type Owner uint8

func (o Owner) String() string {
	return [...]string{
		Socket: "socket", // the sockets of the agent's own network namespace
		Netns:  "netns",  // those of another namespace: Offering.Netns
		Table:  "table",  // its own table of flows: the sockets are out of sight
	}[o]
}

// Offering is a service as the agent of a server sees it.
type Offering struct {
	Name       string
	VIP        VIP
	Wire       Wire // as the LBs' services
	Acceptance Acceptance
	Threshold  int     // Static: c. Dynamic: the first c
	Window     int     // Dynamic: offers a window
	Epsilon    float64 // Dynamic: half the band around ½ in which c stays
	Workers    int     // Dynamic: n, the largest c
	Cores      int     // at most this many accepted, not arrived connections count as load
	Measure    Measure
	Source     Source // Measure Page: the program that reports
	From       string // address that the source is read from
	Of         string // the part of the program that takes the service's requests
	Page       string // PageSource: path of the page; "unix:" and of the socket that hands it over
	PageOwner  string // user and group that a new page is given to; empty: the agent's
	PageGroup  string
	PageMode   uint32 // permissions of a new page
	OnFull     OnFull
	Owner      Owner
	Netns      string // Netns: path of the namespace
	MAC        MAC    // Table: link address that the VIP answers at, if not the host's (macvlan)
}

// HandedAt is the path of the socket that hands a page over, of a value of `page`; false: the page
// is a file.
func HandedAt(page string) (socket string, handed bool) { return strings.CutPrefix(page, "unix:") }

// Handed reports whether a program maps its page from the data plane.
func (o *Offering) Handed() bool {
	_, handed := HandedAt(o.Page)
	return handed && o.Measure.Page() && o.Source.Row().File
}

// Load is the value of the key `load`.
func (o *Offering) Load() Load { return Load{o.Measure, o.Source} }

// Agent is all that the agent of a server runs on.
type Agent struct {
	Node
	Flows    FlowTable
	Services []Offering
}
