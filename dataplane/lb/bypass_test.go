package lb_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"

	"proffer/dataplane/internal/hook"
	"proffer/proof/rig"
)

// TestBypass: another program before the one for long packets, and its end by another's hand, are
// problems that name the way in; the end is one of XDP's, too.
func TestBypass(t *testing.T) {
	rig.Enter(t)
	cfg := rig.LBConfig(rig.Hunting(2, 8, rig.Members))
	cfg.Pin = rig.BPFFS(t) + "/lb1"
	l := started(t, cfg)
	problems := func(when string, want ...string) {
		t.Helper()
		found, err := l.Problems()
		if err != nil || len(found) != len(want) {
			t.Fatalf("%s: %q, %v", when, found, err)
		}
		for i := range want {
			if !strings.Contains(found[i], want[i]) {
				t.Errorf("%s: %q lacks %q", when, found[i], want[i])
			}
		}
	}
	problems("alone")
	theirs, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.SchedCLS, Name: "theirs", License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer theirs.Close()
	before, err := link.AttachTCX(link.TCXOptions{Interface: l.Dev.Load().Index, Program: theirs, Attach: ebpf.AttachTCXIngress, Anchor: link.Head()})
	if err != nil {
		t.Fatal(err)
	}
	problems("behind another", "on the way into "+rig.Device+" packets meet theirs (id ")
	if err := before.Close(); err != nil {
		t.Fatal(err)
	}
	detach := func(pin string) {
		t.Helper()
		ours, err := link.LoadPinnedLink(l.Pins.Path(pin), nil)
		if err == nil {
			err = ours.Detach()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	detach(hook.IngressPin)
	problems("detached", "the program on the way into "+rig.Device+" was detached by another program")
	detach(hook.XDPPin)
	problems("both detached", "the XDP program of "+rig.Device, "the way into")
	if err := errors.Join(l.Detach(), l.Close()); err != nil {
		t.Fatal(err)
	}
}
