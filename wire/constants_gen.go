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
