// Code generated from the enums of bpf/ by dataplane/internal/constants; DO NOT EDIT.

package topo

var named = []interface{ String() string }{
	Single, Hunt, Stateless, Learned, LearnedLiteral, LearnedAges, Learned2, Lsq, Lsq2, Sed, Sed2, Ecmp, Wcmp, Rr, Awcmp, WrrFeedback, Gsq2,
	Encap, Insert,
	DropFragments, HashFragments,
	HistoryRecovery, AgentsRecovery,
	AllCounting, LiteralCounting, FloodCounting,
	Always, Static, Dynamic,
	Busy, Sockets, Page, Work,
	Reset, Drop,
	Socket, Netns, Table,
}
