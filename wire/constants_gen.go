// Code generated from the enums of bpf/ by dataplane/internal/constants; DO NOT EDIT.

package wire

// enum function
const (
	None              Function = 0x0
	ConnectAvail      Function = 0xca
	ConnectForce      Function = 0xcf
	AckStickiness     Function = 0xa5
	RecoverStickiness Function = 0xe5
	Deliver           Function = 0xd7
	Reject            Function = 0x4e
	CreateStickiness  Function = 0xc5
	RemoveStickiness  Function = 0xf5
	NotMine           Function = 0x40
)

// enum sid_flags
const (
	Retry        Flags = 1
	Final        Flags = 2
	Held         Flags = 4
	ClientClosed Flags = 64
	ServerClosed Flags = 128
)

// enum argument
const (
	ArgumentIpv6 = 0
	ArgumentIpv4 = 4
)

// enum edge_wire
const (
	EdgeServiceBits = 9
	EdgeCoreBits    = 6
	EdgeServerBits  = 8
	EdgeCoreShift   = 9
	EdgeServerShift = 15
	EdgeUpdate      = 8388608
	EdgeInstance    = 8388607
	EdgeOwnPart     = 32767
	EdgeMarkTo      = 592
	EdgeMarkFrom    = 594
	VirtualStamp    = 1448103252
)

// enum edge_message
const (
	MessagePacket  = 0
	MessageRecover = 1
	MessageOwned   = 2
	MessageNotMine = 3
	MessageProbe   = 4
	MessageAlive   = 5
	MessageUnbound = 6
	Messages       = 7
	MessageBits    = 15
)

// enum edge_way
const (
	WayInward  = 16
	WayReturns = 32
	WayBits    = 240
	Ways       = 48
)
