package hook_test

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"proffer/dataplane/internal/hook"
	"proffer/proof/rig"
)

// leaving loads a program that returns a constant.
func leaving(t *testing.T, kind ebpf.ProgramType, name string, verdict int32) *ebpf.Program {
	t.Helper()
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: kind, Name: name, License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, verdict), asm.Return()},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

// place is that of a program on the way out of the rig's link, with pins.
func place(t *testing.T) hook.Place {
	t.Helper()
	rig.Enter(t)
	dev, err := net.InterfaceByName(rig.Device)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := unix.Mount("bpf", dir, "bpf", 0, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return hook.Place{Dev: dev, Pin: filepath.Join(dir, "egress"), Mark: filepath.Join(dir, "clsact")}
}

func attach(t *testing.T, at hook.Place) *hook.TC {
	t.Helper()
	e, err := hook.AttachTC(at, leaving(t, ebpf.SchedCLS, "ours", -1))
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// filters lists the priorities and names of the filters on the way out.
func filters(t *testing.T) (all []string) {
	t.Helper()
	l, err := netlink.LinkByName(rig.Device)
	if err != nil {
		t.Fatal(err)
	}
	found, err := netlink.FilterList(l, netlink.HANDLE_MIN_EGRESS)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range found {
		all = append(all, fmt.Sprintf("%d %s", f.Attrs().Priority, f.(*netlink.BpfFilter).Name))
	}
	slices.Sort(all)
	return all
}

func qdisc(dev int) *netlink.Clsact {
	return &netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{LinkIndex: dev, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT}}
}

// foreignFilter adds a filter of another person.
func foreignFilter(t *testing.T, dev int, priority uint16) {
	t.Helper()
	err := netlink.FilterAdd(&netlink.BpfFilter{
		FilterAttrs: netlink.FilterAttrs{LinkIndex: dev, Parent: netlink.HANDLE_MIN_EGRESS, Handle: 1, Protocol: unix.ETH_P_ALL, Priority: priority},
		Fd:          leaving(t, ebpf.SchedCLS, "theirs", -1).FD(), Name: "theirs", DirectAction: true,
	})
	if err != nil {
		t.Fatal(err)
	}
}

func wantFilters(t *testing.T, when string, want ...string) {
	t.Helper()
	if got := filters(t); !slices.Equal(got, want) {
		t.Errorf("%s the filters are %q, want %q", when, got, want)
	}
}

func hasQdisc(t *testing.T, dev int) bool {
	t.Helper()
	err := netlink.QdiscAdd(qdisc(dev))
	if err == nil {
		netlink.QdiscDel(qdisc(dev))
	}
	return err != nil
}

// TestFiltersOfOthersStay: without tcx our filter takes a free priority, the place of an
// earlier agent's if there is one, and its end touches no filter and no qdisc of others.
func TestFiltersOfOthersStay(t *testing.T) {
	at := place(t).WithoutTCX()
	dev := at.Dev.Index
	if err := netlink.QdiscAdd(qdisc(dev)); err != nil {
		t.Fatal(err)
	}
	foreignFilter(t, dev, 1)
	foreignFilter(t, dev, 3)
	attach(t, at) // and is killed
	wantFilters(t, "beside others", "1 theirs", "2 proffer_agent_out", "3 theirs")
	second := attach(t, at)
	wantFilters(t, "after an earlier agent", "1 theirs", "2 proffer_agent_out", "3 theirs")
	if text, err := second.Bypassed(rig.Device); err != nil || !strings.Contains(text, "bpf filter at priority 1 before our program") {
		t.Errorf("behind another filter: %q, %v", text, err)
	}
	if err := second.Detach(); err != nil {
		t.Fatal(err)
	}
	wantFilters(t, "after Detach", "1 theirs", "3 theirs")
	if err := netlink.QdiscDel(qdisc(dev)); err != nil {
		t.Fatal(err)
	}
	third := attach(t, at)
	foreignFilter(t, dev, 7)
	if err := third.Detach(); err != nil {
		t.Fatal(err)
	}
	wantFilters(t, "on our own qdisc", "7 theirs")
	if err := netlink.QdiscDel(qdisc(dev)); err != nil {
		t.Fatal(err)
	}
	fourth := attach(t, at)
	if text, err := fourth.Bypassed(rig.Device); err != nil || text != "" {
		t.Errorf("alone: %q, %v", text, err)
	}
	if err := fourth.Detach(); err != nil || hasQdisc(t, dev) {
		t.Errorf("our own empty qdisc stays: %v", err)
	}
	fifth := attach(t, at)
	if err := netlink.QdiscDel(qdisc(dev)); err != nil {
		t.Fatal(err)
	}
	if text, err := fifth.Bypassed(rig.Device); err != nil || !strings.Contains(text, "was detached by another program") {
		t.Errorf("without its qdisc: %q, %v", text, err)
	}
}

// TestRemove: a directory of pins leads to the filter and the qdisc of a daemon that is gone,
// although another person detached its XDP program.
func TestRemove(t *testing.T) {
	at := place(t).WithoutTCX()
	dir, err := hook.Dir(filepath.Dir(at.Pin), at.Dev)
	if err == nil {
		err = os.Mkdir(dir, 0o700)
	}
	if err != nil {
		t.Fatal(err)
	}
	at.Pin, at.Mark, at.In = filepath.Join(dir, hook.IngressPin), filepath.Join(dir, hook.QdiscMark), true
	attach(t, at)
	xdp, err := link.AttachXDP(link.XDPOptions{Program: leaving(t, ebpf.XDP, "ours", 2), Interface: at.Dev.Index})
	if err == nil {
		err = errors.Join(xdp.Pin(filepath.Join(dir, hook.XDPPin)), xdp.Detach(), xdp.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := hook.Remove(dir); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(dir); !os.IsNotExist(err) || hasQdisc(t, at.Dev.Index) {
		t.Errorf("the directory: %v; the qdisc stays: %v", err, hasQdisc(t, at.Dev.Index))
	}
}

// TestBesideTCX: our tcx program is the first, another before it is noticed, and so is our
// end by another's hand; the programs of others stay.
func TestBesideTCX(t *testing.T) {
	at := place(t)
	theirs, err := link.AttachTCX(link.TCXOptions{Interface: at.Dev.Index, Program: leaving(t, ebpf.SchedCLS, "theirs", 0), Attach: ebpf.AttachTCXEgress})
	if err != nil {
		t.Fatal(err)
	}
	defer theirs.Close()
	e := attach(t, at)
	if text, err := e.Bypassed(rig.Device); err != nil || text != "" {
		t.Errorf("beside one that was there before: %q, %v", text, err)
	}
	before, err := link.AttachTCX(link.TCXOptions{Interface: at.Dev.Index, Program: leaving(t, ebpf.SchedCLS, "intruder", 0), Attach: ebpf.AttachTCXEgress, Anchor: link.Head()})
	if err != nil {
		t.Fatal(err)
	}
	if text, err := e.Bypassed(rig.Device); err != nil || !strings.Contains(text, "intruder (id ") {
		t.Errorf("behind another: %q, %v", text, err)
	}
	if err := before.Close(); err != nil {
		t.Fatal(err)
	}
	again := attach(t, at) // takes the place of the one that was killed
	if n := programs(t, at.Dev.Index); n != 2 {
		t.Errorf("%d programs, want theirs and ours", n)
	}
	left, err := link.LoadPinnedLink(at.Pin, nil)
	if err == nil {
		err = left.Detach()
	}
	if err != nil {
		t.Fatal(err)
	}
	if text, err := again.Bypassed(rig.Device); err != nil || !strings.Contains(text, "was detached by another program") {
		t.Errorf("detached: %q, %v", text, err)
	}
	last := attach(t, at)
	if err := last.Detach(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(at.Pin); !os.IsNotExist(err) || programs(t, at.Dev.Index) != 1 {
		t.Errorf("after Detach: the pin %v, %d programs", err, programs(t, at.Dev.Index))
	}
}

// programs counts those on the way out.
func programs(t *testing.T, dev int) int {
	t.Helper()
	all, err := link.QueryPrograms(link.QueryOptions{Target: dev, Attach: ebpf.AttachTCXEgress})
	if err != nil {
		t.Fatal(err)
	}
	return len(all.Programs)
}

// TestAdviceWorks: the command in the error, and no other, ends the XDP program that is in the
// way.
func TestAdviceWorks(t *testing.T) {
	byLink := func(t *testing.T, dev netlink.Link, p *ebpf.Program) {
		l, err := link.AttachXDP(link.XDPOptions{Program: p, Interface: dev.Attrs().Index, Flags: link.XDPDriverMode})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
	}
	byNetlink := func(flags int) func(*testing.T, netlink.Link, *ebpf.Program) {
		return func(t *testing.T, dev netlink.Link, p *ebpf.Program) {
			if err := netlink.LinkSetXdpFdWithFlags(dev, p.FD(), flags); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, c := range []struct {
		name, program, command string
		attach                 func(*testing.T, netlink.Link, *ebpf.Program)
	}{
		{"bpf_link", "theirs", "bpftool link detach id ", byLink},
		{"netlink", "theirs", "ip link set dev eth0 xdp off", byNetlink(unix.XDP_FLAGS_DRV_MODE)},
		{"netlink, generic", "theirs", "ip link set dev eth0 xdpgeneric off", byNetlink(unix.XDP_FLAGS_SKB_MODE)},
		{"libxdp", "xdp_dispatcher", "", byLink},
	} {
		t.Run(c.name, func(t *testing.T) {
			at := place(t)
			if err := hook.Occupied(at.Dev); err != nil {
				t.Errorf("an empty link: %v", err)
			}
			dev, err := netlink.LinkByName(rig.Device)
			if err != nil {
				t.Fatal(err)
			}
			c.attach(t, dev, leaving(t, ebpf.XDP, c.program, 2))
			err = hook.Occupied(at.Dev)
			if err == nil || !strings.Contains(err.Error(), c.program+" (id ") {
				t.Fatalf("the program in the way is not named: %v", err)
			}
			if c.command == "" {
				if !strings.Contains(err.Error(), "`xdp-loader unload eth0 --all`") {
					t.Errorf("no word of xdp-loader: %v", err)
				}
				return
			}
			_, command, _ := strings.Cut(err.Error(), "`")
			command, _, _ = strings.Cut(command, "`")
			if !strings.HasPrefix(command, c.command) {
				t.Fatalf("the command is %q, want %q", command, c.command)
			}
			words := strings.Fields(command)
			if out, err := exec.Command(words[0], words[1:]...).CombinedOutput(); err != nil {
				t.Errorf("%s: %v: %s", command, err, out)
			}
			if err := hook.Occupied(at.Dev); err != nil {
				t.Errorf("after the command: %v", err)
			}
		})
	}
}
