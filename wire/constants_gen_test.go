// Code generated from the enums of bpf/ by dataplane/internal/constants; DO NOT EDIT.

package wire

var named = []interface{ String() string }{
	None, ConnectAvail, ConnectForce, AckStickiness, RecoverStickiness, Deliver, Reject, CreateStickiness, RemoveStickiness, NotMine,
	Retry, Final, Held, ClientClosed, ServerClosed,
}
