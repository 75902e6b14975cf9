package bench

import (
	"errors"
	"fmt"
	"io"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
)

// hooks are programs that do nothing.
type hooks []io.Closer

// Hook attaches a program that does nothing to each of these tracepoints of the kernel:
// their cost is the floor under a program there.
func Hook(tracepoints ...string) (io.Closer, error) {
	var h hooks
	for _, at := range tracepoints {
		p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
			Type: ebpf.Tracing, AttachType: ebpf.AttachTraceRawTp, AttachTo: at, License: "Dual BSD/GPL",
			Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()},
		})
		if err != nil {
			return nil, errors.Join(fmt.Errorf("load an empty program for %s: %w", at, err), h.Close())
		}
		h = append(h, p)
		l, err := link.AttachTracing(link.TracingOptions{Program: p})
		if err != nil {
			return nil, errors.Join(fmt.Errorf("attach an empty program to %s: %w", at, err), h.Close())
		}
		h = append(h, l)
	}
	return h, nil
}

// Close detaches them.
func (h hooks) Close() error {
	var errs []error
	for _, c := range h {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}
