package wire

import "fmt"

// Function is the code of a SID, for the node of its locator.
type Function uint16

// Role is a node's part in the farm.
type Role uint8

const (
	LB Role = iota
	Server
)

func (r Role) String() string { return [...]string{LB: "LB", Server: "server"}[r] }

// Signal is a meaning of a function.
type Signal struct {
	Function Function
	Short    string // as logs and documents spell it
	Name     string // as the papers spell it
	From, At Role
	Signed   bool // its sender's address carries a tag
	Meaning  string
}

// Signals lists all messages of Proffer on the wire, in the order of docs/design/wire.md.
func Signals() []Signal {
	return []Signal{
		{ConnectAvail, "ca", "connectAvail", LB, Server, true, "take this connection, or pass the offer on"},
		{ConnectForce, "cf", "connectForce", LB, Server, true, "take this connection"},
		{AckStickiness, "as", "ackStickiness", LB, Server, false, "steered: the LB knows that the server has the flow"},
		{RecoverStickiness, "rs", "recoverStickiness", LB, Server, true, "deliver and signal `cs` again if the flow is the server's, else pass the packet on"},
		{Reject, "rj", "reject", LB, Server, true, "end the request: another server had the connection first"},
		{Deliver, "dt", "deliver", LB, Server, false, "decapsulate and deliver (End.DT6); the argument is 0, and 4 to a kernel's End.DX4"},
		{CreateStickiness, "cs", "createStickiness", Server, LB, true, "the server took the connection"},
		{RemoveStickiness, "rms", "removeStickiness", Server, LB, true, "the server closed the connection"},
		{NotMine, "nm", "notMine", Server, LB, true, "the server has no such flow (data), or no listener (SYN): ask the others"},
		{RecoverStickiness, "rs", "recoverStickiness", LB, LB, true, "go on with the list at the position in the report"},
	}
}

// String is the function's short name; of a function that has none, its number.
func (f Function) String() string {
	if f == None {
		return "none"
	}
	for _, s := range Signals() {
		if s.Function == f {
			return s.Short
		}
	}
	return fmt.Sprintf("%04x", uint16(f))
}
