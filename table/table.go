// Package table maps flows to short lists of servers by consistent hashing:
// Algorithm 3 of the 6LB paper (§III), Maglev's when lists have a single position. Every
// LB with the same servers builds the same table without any exchange, and a
// change of the servers leaves most lists as they were.
//
// Beyond the paper: servers carry weights, M need not be prime, and with fewer
// servers than choices lists are shorter, where the paper's loop has no end.
package table

import "proffer/topo"

// Limits of a table.
const (
	MaxServers = 4096
	MaxBuckets = 1 << 24
	MaxChoices = topo.MaxChoices

	// DefaultBuckets is the paper's M, a prime far above any N.
	DefaultBuckets = 65537
)

// Table holds a list of servers a bucket. It never changes; any number of
// goroutines may read it.
type Table struct {
	buckets int
	choices int
	lists   []uint16 // bucket b's list is lists[b*choices : (b+1)*choices]
}

// Buckets is M.
func (t *Table) Buckets() int { return t.buckets }

// Choices is the length of every list: C, or the number of servers that take
// flows if that is less.
func (t *Table) Choices() int { return t.choices }

// Index is the bucket of a flow with this hash: the hash's upper 32 bits scaled
// to M, a multiplication and a shift that eBPF can do too.
func (t *Table) Index(hash uint64) int {
	return int(hash >> 32 * uint64(t.buckets) >> 32)
}

// Bucket is the list of bucket b, 0 ≤ b < M: numbers of servers in the order of
// their being asked, no server twice. It is a view of the table; do not write to it.
func (t *Table) Bucket(b int) []uint16 {
	from, to := b*t.choices, (b+1)*t.choices
	return t.lists[from:to:to]
}

// Lookup is the list of a flow with this hash. It allocates nothing.
func (t *Table) Lookup(hash uint64) []uint16 { return t.Bucket(t.Index(hash)) }
