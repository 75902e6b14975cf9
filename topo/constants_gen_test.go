// Code generated from the enums of bpf/ by dataplane/internal/constants; DO NOT EDIT.

package topo

var named = []interface{ String() string }{
	Single, Hunt, Stateless,
	Encap, Insert,
	DropFragments, HashFragments,
	HistoryRecovery, AgentsRecovery,
	Always, Static, Dynamic,
	Busy, Sockets, Page, Work,
	Reset, Drop,
	Socket, Netns, Table,
}
