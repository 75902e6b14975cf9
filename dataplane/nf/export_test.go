package nf

import "github.com/cilium/ebpf"

// Loaded are all programs by their names in C: those of XDP, and those for a cpumap.
func (n *Node) Loaded() (xdp, cpumap map[string]*ebpf.Program) { return n.programs, n.cores.Programs }
