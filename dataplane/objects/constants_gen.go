// Code generated from the enums of bpf/ by dataplane/internal/constants; DO NOT EDIT.

package objects

// enum delivery
const (
	DeliveryNone    = 0
	DeliveryAgent   = 1
	DeliverySeg6    = 2
	DeliveryL2      = 3
	DeliveryVxlan   = 4
	DeliveryWays    = 7
	DeliveryDown    = 8
	DeliveryDoubted = 16
)

// enum pending_ring
const (
	PendingEpochs = 8
	EpochShift    = 27
)

// enum service_slot
const (
	NoRecord         = 0
	ServiceGone      = 1
	ServiceSlotBits  = 13
	MaxProbes        = 64
	RecordNumberBits = 14
	SlotHashShift    = 16
)

// enum plain
const (
	PlainNo     = 0
	PlainFlows  = 1
	PlainClient = 2
	PlainHash   = 3
)

// enum sender_slots
const (
	SenderSlotBits = 15
	SendersInLine  = 32
)

// enum bucket_layout
const (
	NumberBits   = 14
	NamedMembers = 3
	FirstMembers = 2
	RestShift    = 28
	SeatShift    = 42
	ChoicesShift = 53
	MembersShift = 56
)

// enum list_end
const (
	PositionCheck = 255
)

// enum tally_layout
const (
	TreeAry     = 8
	TreeTop     = 16
	SeatSamples = 8
	DateShift   = 22
)

// enum alias_layout
const (
	AliasOther = 16
	AliasPart  = 32
)

// enum crowding
const (
	ElementMembers = 4
	CrowdElements  = 60
	CrowdStart     = 2
)

// enum hinting
const (
	HintShift = 40
)

// enum hinted
const (
	HintedLines = 16
)

// enum conn_state
const (
	ConnWait   = 1
	ConnDirect = 2
)

// enum conn_flags
const (
	ConnAsking     = 1
	ConnPending    = 2
	ConnRemovalDue = 4
	ConnClientFin  = 8
	ConnServerFin  = 16
	ConnDoubted    = 32
	ConnNextOut    = 64
	ConnAskingOdd  = 128
	ConnClosed     = 24
)

// enum conn_date
const (
	SeenShift = 20
)

// enum completeness
const (
	ConnsIncomplete = 0
	ConnsSought     = 1
	ConnsComplete   = 2
)

// enum work_term
const (
	WorkUnread  = 0
	WorkEarly   = 1
	WorkRun     = 2
	WorkBlocked = 3
	WorkOut     = 4
	WorkTerms   = 8
)

// enum work_sharing
const (
	WorkSharedMs = 100
)
