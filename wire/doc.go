// Package wire builds and parses the packets between LBs and servers: SIDs, segment
// routing headers, tags, and the packets that clients and servers exchange inside
// (docs/design/wire.md). Nothing else in Go knows how a frame is laid out, but for
// proof/oracle, which judges the programs and so shares nothing with them.
package wire

// The functions and flags of SIDs are those of the C programs.
//
//go:generate go run ../dataplane/internal/constants ../bpf
