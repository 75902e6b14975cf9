package nf_test

import (
	"slices"
	"testing"

	"github.com/cilium/ebpf"

	"proffer/dataplane/nf"
	"proffer/dataplane/objects"
)

// TestAddedFunction: the program of a function that no Go file names is loaded for both kinds of cores,
// with one map of settings for both, and the verifier's work on it is known.
func TestAddedFunction(t *testing.T) {
	const program, settings = "node_example", "example_settings"
	enter(t)
	cfg := config()
	cfg.Cores, cfg.Spread = 1, true
	n, err := nf.NewWith(cfg, func(spec *ebpf.CollectionSpec) error {
		spec.Maps[settings] = spec.Maps[objects.NFMapCostSettings].Copy()
		added := spec.Programs[objects.NFProgNodeCost].Copy()
		for i := range added.Instructions {
			if ins := &added.Instructions[i]; ins.Reference() == objects.NFMapCostSettings {
				*ins = ins.WithReference(settings)
			}
		}
		spec.Programs[program] = added
		return nil
	})
	must(t, err)
	defer func() { must(t, n.Close()) }()
	xdp, cpumap := n.Loaded()
	if xdp[program] == nil || cpumap[program] == nil {
		t.Fatalf("the program is %v, and %v for a cpumap", xdp[program], cpumap[program])
	}
	all, err := n.Verified()
	must(t, err)
	verified := map[string]bool{}
	for _, v := range all {
		verified[v.Program] = true
	}
	for name := range xdp {
		if !verified[name] {
			t.Errorf("the verifier's work on %s is not known", name)
		}
	}
	for name, p := range cpumap {
		for _, id := range mapsOf(t, p) {
			if !slices.Contains(mapsOf(t, xdp[name]), id) {
				t.Errorf("%s for a cpumap has map %d of its own", name, id)
			}
		}
	}
}

// mapsOf are the maps of a program but arrays of programs, by their ids.
func mapsOf(t *testing.T, p *ebpf.Program) []ebpf.MapID {
	t.Helper()
	info, err := p.Info()
	must(t, err)
	ids, known := info.MapIDs()
	if !known {
		t.Fatal("this kernel does not report the maps of programs")
	}
	return slices.DeleteFunc(ids, func(id ebpf.MapID) bool {
		m, err := ebpf.NewMapFromID(id)
		must(t, err)
		defer m.Close()
		return m.Type() == ebpf.ProgramArray
	})
}
