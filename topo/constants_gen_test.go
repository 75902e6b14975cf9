// Code generated from the enums of bpf/ by dataplane/internal/constants; DO NOT EDIT.

package topo

var named = []interface{ String() string }{
	Single, Hunt,
	Encap, Insert,
	DropFragments, HashFragments,
	Always, Static, Dynamic,
	Busy, Sockets, Page,
	Reset, Drop,
	Socket, Netns, Table,
}
