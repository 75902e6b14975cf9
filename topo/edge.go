package topo

import (
	"net/netip"
	"time"
)

// EdgeLB is a load balancer of EdgeBalance: it stands between a client network and the
// world, and sends every flow of the client network through an instance of its service.
type EdgeLB struct {
	Name           string
	Control        string // unix socket
	Pin            string // bpffs directory where links and flows outlive the daemon
	Clients, World string // its links to both
	Balance        Balance
	Nodes          []EdgeNode
	Services       []EdgeService
	Public         []netip.Prefix // addresses that functions give to flows: the world begins none there
	RecoverAll     bool           // the nodes are asked about packets that may begin a flow, too
	Key            Key            // of the digests of flows
	ReportKey      *Key           // of the nodes' reports; nil: they report nothing
	Flows          FlowTable
	StartReplica   []string // the command that starts another node; empty: there is none
}

// Balance is the rule for how an edge LB weighs cores for new flows.
type Balance uint8

// The rules.
const (
	ByModel    Balance = iota // the loads that the counted packets and their costs predict are levelled
	ByMonitor                 // the loads that the nodes report are levelled, by the paper's PID
	RoundRobin                // the weights of the configuration
)

// Balances lists the rules.
func Balances() []Balance { return []Balance{ByModel, ByMonitor, RoundRobin} }

func (b Balance) String() string { return [...]string{"model", "monitor", "wrr"}[b] }

// EdgeNode is a datapath node, as its LB sees it.
type EdgeNode struct {
	Name   string
	Server int        // its number
	Addr   netip.Addr // the far end of its tunnel
	Link   string     // the LB's link to it
	Cores  int
	Weight int // of each of its cores; 0 drains the node
}

// EdgeService is a chain of functions for the flows of some prefixes of the client network.
type EdgeService struct {
	Number    int
	Cost      time.Duration // of a packet at a core; 0: as the nodes measured
	Prefixes  []netip.Prefix
	Instances []EdgeInstance
}

// EdgeInstance is a service's chain on a core of a node, with its share of new flows.
type EdgeInstance struct {
	Server, Core int
	Weight       float64
}

// Datapath is a datapath node of EdgeBalance: it sends the packets of each service through
// the service's chain of functions, at the core that the LB chose.
type Datapath struct {
	Name    string
	Control string // unix socket
	Pin     string // bpffs directory where links and flows outlive the daemon
	Server  int    // its number at the LBs
	Link    string // to the LBs
	LBs     []netip.Addr
	Cores   int
	Spread  bool           // each core is a CPU; otherwise all share those that the link's packets come to
	Clients []netip.Prefix // the client network: outward packets have a source there
	Chains  []Chain
	Idle    time.Duration // after which a function forgets a flow without packets
	Linger  time.Duration // … and a flow that both ends closed

	ReportKey *Key // of its reports to the LBs; nil: there are none
}

// Chain is the functions of a service, in the order that outward packets meet them. Inward
// packets meet them in reverse order.
type Chain struct {
	Service   int
	Functions []Function
}

// Function is a network function with its settings: Cost, SourceNAT, Firewall, IDS, Rewriter, Virtual or User.
type Function interface{ Name() string }

// Cost takes time of its core for each packet.
type Cost struct{ Each time.Duration }

// Name is the function's name in configurations and documents.
func (Cost) Name() string { return "cost" }

// Virtual takes time of a virtual core for each packet; so many wait at most.
type Virtual struct {
	Each  time.Duration
	Queue int // packets of Each

	// Noise is the standard deviation of the load that a report has of the core, in parts of it: a real core's
	// load is measured, a virtual core's known.
	Noise float64
}

// Name is the function's name in configurations and documents.
func (Virtual) Name() string { return "virtual" }

// SourceNAT gives flows a public address, and ports of their core's range: core c has Ports
// ports from First + c·Ports on. Both are multiples of 64.
type SourceNAT struct {
	Public4, Public6 netip.Addr // either may be the zero Addr: flows of that family are dropped
	First, Ports     int
}

// Name is the function's name in configurations and documents.
func (SourceNAT) Name() string { return "nat" }

// Firewall admits connections by rules: the first that fits their first packet decides.
// Without a rule the connection is denied.
type Firewall struct{ Rules []Rule }

// Name is the function's name in configurations and documents.
func (Firewall) Name() string { return "firewall" }

// Rule fits the first packets from Source to ports Low to High of Destination.
type Rule struct {
	Allow               bool
	Source, Destination netip.Prefix // the zero Prefix: any
	Protocol            uint8        // 0: any
	Low, High           uint16       // both 0: any
}

// IDS counts packets with patterns of bytes in their payload.
type IDS struct{ Patterns []Pattern }

// Name is the function's name in configurations and documents.
func (IDS) Name() string { return "ids" }

// Pattern is up to 16 bytes. Drop drops the packets that have them.
type Pattern struct {
	Bytes string
	Drop  bool
}

// Rewriter writes To in the place of From in payloads; they are of the same length.
type Rewriter struct{ From, To string }

// Name is the function's name in configurations and documents.
func (Rewriter) Name() string { return "rewriter" }

// User gives packets to a program in user space, which polls for them.
type User struct{ Run UserFunction }

// Name is the function's name in configurations and documents.
func (User) Name() string { return "user" }

// UserFunction is a function of package userspace.
type UserFunction uint8

// The functions in user space.
const (
	ByteCounter UserFunction = iota // counts packets and bytes, and changes nothing
)

// UserFunctions lists the functions.
func UserFunctions() []UserFunction { return []UserFunction{ByteCounter} }

func (f UserFunction) String() string { return [...]string{"counter"}[f] }

// InUserSpace reports whether a chain has a function there.
func (d *Datapath) InUserSpace() bool {
	for _, c := range d.Chains {
		for _, f := range c.Functions {
			if _, ok := f.(User); ok {
				return true
			}
		}
	}
	return false
}
