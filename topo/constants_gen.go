// Code generated from the enums of bpf/ by dataplane/internal/constants; DO NOT EDIT.

package topo

// enum limits
const (
	MaxChoices   = 4
	MaxMembers   = 240
	MaxVia       = 3
	MaxSegments  = 16
	MaxServices  = 1024
	MaxLearned   = 31
	MaxSeats     = 1024
	MaxHops      = 65536
	MaxOffered   = 64
	MaxOfferings = 128
	MaxThreshold = 65535
	MaxAllowed   = 65536
	MaxAgeS      = 14400
	StaleNs      = 1000000000
	MostBusy     = 16777216
)

// enum edge_limits
const (
	MaxEdgeServers  = 256
	MaxEdgeCores    = 64
	MaxEdgeServices = 512
	MaxInstances    = 4096
	MaxEdgePrefixes = 4096
	MaxChain        = 8
	MaxRows         = 256
	EdgeAges        = 20
	MaxKeepalives   = 16
	MaxExpiring     = 256
	MaxNodeExpiring = 64
	EdgeRecentBits  = 13
	EdgeSampled     = 64
	EdgeSamples     = 256
	EdgeOfClients   = 1073741824
	MaxSlots        = 4096
	MaxLbs          = 64
	MaxNatPools     = 32
	NatPortWords    = 1024
	MaxRules        = 32
	MaxPatterns     = 8
	MaxPatternBytes = 16
)

// enum dispatch
const (
	Single         Dispatch = 0
	Hunt           Dispatch = 1
	Stateless      Dispatch = 2
	Learned        Dispatch = 3
	LearnedLiteral Dispatch = 4
	LearnedAges    Dispatch = 5
	Learned2       Dispatch = 6
	Lsq            Dispatch = 7
	Lsq2           Dispatch = 8
	Sed            Dispatch = 9
	Sed2           Dispatch = 10
	Ecmp           Dispatch = 11
	Wcmp           Dispatch = 12
	Rr             Dispatch = 13
	Awcmp          Dispatch = 14
	WrrFeedback    Dispatch = 15
	Gsq2           Dispatch = 16
)

// enum wire
const (
	Encap  Wire = 0
	Insert Wire = 1
)

// enum fragments
const (
	DropFragments Fragments = 0
	HashFragments Fragments = 1
)

// enum recovery
const (
	HistoryRecovery Recovery = 0
	AgentsRecovery  Recovery = 1
)

// enum counting
const (
	AllCounting     Counting = 0
	LiteralCounting Counting = 1
	FloodCounting   Counting = 2
)

// enum acceptance
const (
	Always  Acceptance = 0
	Static  Acceptance = 1
	Dynamic Acceptance = 2
)

// enum measure
const (
	Busy    Measure = 0
	Sockets Measure = 1
	Page    Measure = 2
	Work    Measure = 3
)

// enum on_full
const (
	Reset OnFull = 0
	Drop  OnFull = 1
)

// enum owner
const (
	Socket Owner = 0
	Netns  Owner = 1
	Table  Owner = 2
)
