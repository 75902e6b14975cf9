// Package topo holds the nouns of a Proffer farm: services, servers and load
// balancers, as the configuration states them and the data plane runs them.
// Every other package speaks in these types; this one imports nothing of ours.
package topo

import (
	"fmt"
	"net/netip"
	"time"
)

// MaxChoices is the longest list of candidates one offer carries.
const MaxChoices = 4

// Node is one machine of the SR domain.
type Node struct {
	Name      string
	Locator   netip.Prefix // 64 bits; every SID of the node lies inside (RFC 8986 §3.1)
	Interface string       // the link that the programs are attached to
	Control   string       // unix socket that answers `proffer status`
}

// Server is a host that takes connections of a service.
type Server struct {
	Name    string
	Locator netip.Prefix
}

// VIP is the address of a service: TCP at Addr and Port.
type VIP struct {
	Addr netip.Addr
	Port uint16
}

func (v VIP) String() string { return netip.AddrPortFrom(v.Addr, v.Port).String() }

// Dispatch says how an LB spreads the new flows of a service.
type Dispatch uint8

const (
	Single Dispatch = iota // one server by hash, no state, no agent needed
	Hunt                   // offered to a list of candidates
)

func (d Dispatch) String() string { return [...]string{"single", "hunt"}[d] }

// Service is a VIP as an LB sees it. Servers are sorted by locator, so that
// every LB numbers them alike whatever the order in its file.
type Service struct {
	Name     string
	VIP      VIP
	Dispatch Dispatch
	Choices  int // candidates an offer carries; fewer when there are fewer servers
	Servers  []Server
}

// Key is a 128-bit secret.
type Key [16]byte

// FlowTable bounds the flows one node remembers.
type FlowTable struct {
	Entries int
	Idle    time.Duration // an entry without packets for this long is stale
	Linger  time.Duration // how long an entry outlives the close of both directions
}

// LB is all that one load balancer runs on.
type LB struct {
	Node
	CandidateKey Key // farm-wide and never rotated: it decides every list
	Flows        FlowTable
	Services     []Service
}

// Acceptance is how an agent decides on an offer that it could pass on.
type Acceptance uint8

const (
	Always  Acceptance = iota
	Static             // accept while busy < Threshold (SRLB Algorithm 1)
	Dynamic            // Static with a threshold that adapts (6LB Algorithm 2)
)

func (a Acceptance) String() string { return [...]string{"always", "static", "dynamic"}[a] }

// Signal is where an agent reads its load from.
type Signal uint8

const (
	Busy         Signal = iota // requests in progress + accept queue + accepted, not arrived
	Sockets                    // open connections, counted in the kernel
	SharedMemory               // a page that a program writes; Offering.Page names it
)

func (s Signal) String() string { return [...]string{"busy", "sockets", "shm"}[s] }

// OnFull is what the last candidate does when its accept queue is full.
type OnFull uint8

const (
	Reset OnFull = iota // answer RST, as the papers' tcp_abort_on_overflow meant
	Drop                // leave the client to retransmit
)

func (o OnFull) String() string { return [...]string{"rst", "drop"}[o] }

// Offering is a service as the agent of one server sees it.
type Offering struct {
	Name       string
	VIP        VIP
	Acceptance Acceptance
	Threshold  int     // Static: c. Dynamic: the first c
	Window     int     // Dynamic: offers a window
	Epsilon    float64 // Dynamic: half the band around ½ in which c stays
	Workers    int     // Dynamic: n, the largest c
	Cores      int     // at most this many accepted, not arrived connections count as load
	Signal     Signal
	Page       string // SharedMemory: path of the page
	OnFull     OnFull
}

// Agent is all that the agent of one server runs on.
type Agent struct {
	Node
	Flows    FlowTable
	Services []Offering
}

// Policy is a way to spread load, spelt as everywhere in Proffer: "single",
// "hunt:static:4", "hunt:dynamic".
type Policy struct {
	Dispatch   Dispatch
	Acceptance Acceptance
	Threshold  int
}

func (p Policy) String() string {
	switch {
	case p.Dispatch == Single:
		return "single"
	case p.Acceptance == Static:
		return fmt.Sprintf("hunt:static:%d", p.Threshold)
	default:
		return "hunt:" + p.Acceptance.String()
	}
}
