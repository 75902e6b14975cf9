package dataplane

import "github.com/cilium/ebpf"

// Programs is how a plane comes by its programs. Daemons read and load those that ship; benches
// and proofs change them before, and a test may take programs that an earlier test loaded.
type Programs struct {
	Read   func() (*ebpf.CollectionSpec, error)
	Change func(*ebpf.CollectionSpec) error // or nil
	Load   func(spec *ebpf.CollectionSpec, to any, options *ebpf.CollectionOptions) error
}

// Shipped are the programs that read returns, with a change or nil.
func Shipped(read func() (*ebpf.CollectionSpec, error), change func(*ebpf.CollectionSpec) error) Programs {
	return Programs{Read: read, Change: change, Load: (*ebpf.CollectionSpec).LoadAndAssign}
}
