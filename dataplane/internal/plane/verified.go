package plane

import (
	"fmt"

	"github.com/cilium/ebpf"

	"proffer/dataplane"
)

// VerifiedOf asks the kernel about programs.
func VerifiedOf(programs map[string]*ebpf.Program, names ...string) (all []dataplane.Verified, err error) {
	for _, name := range names {
		info, err := programs[name].Info()
		if err != nil {
			return nil, fmt.Errorf("ask the kernel about program %s: %w", name, err)
		}
		n, known := info.VerifiedInstructions()
		if !known {
			return nil, fmt.Errorf("this kernel does not report its verifier's work on program %s", name)
		}
		all = append(all, dataplane.Verified{Program: name, Instructions: n})
	}
	return all, nil
}
