package testbed

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// pidPrefix begins the name of every run of this process, with a dash for the dot.
func pidPrefix() string { return fmt.Sprintf("%d-", os.Getpid()) }

func start(t *testing.T, n *Node, name string, args ...string) *Process {
	t.Helper()
	p, err := n.Start(t.Context(), name, args...)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestProcessLivesInItsNode(t *testing.T) {
	b := up(t, Config{Servers: 2})
	p := start(t, b.Servers[1], "readlink", "/proc/self/ns/net")
	if err := p.Wait(); err != nil {
		t.Fatal(err)
	}
	var own string
	err := b.Servers[1].Do(func() (err error) {
		own, err = os.Readlink(ownNamespace)
		return err
	})
	if err != nil || p.Log() != own {
		t.Fatalf("process in %q, node is %q (%v)", p.Log(), own, err)
	}
	if here, _ := os.Readlink(ownNamespace); here == own {
		t.Fatal("the test did not come back from the node")
	}
}

func TestProcessSeesTheMachinesSysfs(t *testing.T) {
	b := up(t, Config{Servers: 1})
	var out bytes.Buffer
	cmd := exec.Command("sh", "-c", `test -e /sys/kernel/btf/vmlinux && echo "$HUNT"`)
	cmd.Env = append(os.Environ(), "HUNT=yes")
	cmd.Stdout = &out
	p, err := b.Servers[0].StartCommand(cmd)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Wait(); err != nil || out.String() != "yes\n" {
		t.Fatalf("got %q, %v", out.String(), err)
	}
}

func TestEachProcessHasItsLog(t *testing.T) {
	b := up(t, Config{Servers: 1})
	one := start(t, b.Servers[0], "echo", "one")
	two := start(t, b.Servers[0], "echo", "two")
	one.Wait()
	two.Wait()
	if one.Log() != "one" || two.Log() != "two" {
		t.Fatalf("logs %q and %q", one.Log(), two.Log())
	}
}

func TestUnknownProgram(t *testing.T) {
	b := up(t, Config{Servers: 1})
	if _, err := b.Servers[0].Start(t.Context(), "/no/such/program"); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("got %v", err)
	}
}

func TestStubbornProcessIsKilled(t *testing.T) {
	b := up(t, Config{Servers: 1})
	// The grandchild is what only the look through /proc finds.
	p := start(t, b.Servers[0], "sh", "-c", `trap "" TERM; setsid sleep 1000 & echo $!; while :; do sleep 1; done`)
	waitFor(t, "the grandchild's pid", func() bool { return p.Log() != "" })
	var grandchild int
	fmt.Sscan(p.Log(), &grandchild)
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	wantGone(t, p.Pid())
	wantGone(t, grandchild)
	wantNothingLeft(t)
	if _, err := b.Servers[0].Start(t.Context(), "true"); err == nil {
		t.Fatal("started a process in a closed bed")
	}
}

func TestStopAsksFirst(t *testing.T) {
	b := up(t, Config{Servers: 1})
	p := start(t, b.Servers[0], "sh", "-c", `trap "echo bye; exit 0" TERM; echo ready; while :; do sleep 0.01; done`)
	waitFor(t, "the program to be ready", func() bool { return p.Log() != "" })
	if err := p.Stop(); err != nil {
		t.Fatal(err)
	}
	if p.Wait() != nil || !strings.HasSuffix(p.Log(), "bye") {
		t.Fatalf("ended with %v after %q", p.Wait(), p.Log())
	}
	if err := p.Stop(); err != nil {
		t.Fatalf("second stop: %v", err)
	}
}

func waitFor(t *testing.T, what string, ready func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !ready(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited 10 s for %s", what)
		}
	}
}

// wantGone waits for a process to end, as a zombie at least: its parent, once
// that is not us, may take its time.
func wantGone(t *testing.T, pid int) {
	t.Helper()
	waitFor(t, fmt.Sprintf("process %d to end", pid), func() bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		return err != nil || bytes.Contains(stat, []byte(") Z "))
	})
}

func TestReapAfterKill(t *testing.T) {
	// The child builds a bed with a grandchild sleeping in it, and is killed.
	child := exec.Command(os.Args[0], "-test.run=^TestMain$")
	child.Env = append(os.Environ(), childEnv+"=bed")
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	var run string
	var direct, sleeper int
	if _, err := fmt.Fscan(out, &run, &direct, &sleeper); err != nil {
		child.Process.Kill()
		t.Fatalf("child said nothing: %v", err)
	}
	live := up(t, Config{Servers: 1}) // neither this nor the child's bed is stale yet
	if paths, _ := namespaces(run); len(paths) == 0 {
		t.Fatal("the child's living bed was reaped")
	}
	if _, err := os.Stat(pins(run) + "/lb1"); err != nil {
		t.Fatalf("the child's pins: %v", err)
	}
	child.Process.Signal(unix.SIGKILL)
	child.Wait()
	wantGone(t, direct) // by Pdeathsig
	if err := unix.Kill(sleeper, 0); err != nil {
		t.Fatalf("the sleeper should outlive its run: %v", err)
	}
	if _, err := Reap(); err != nil {
		t.Fatal(err)
	}
	wantGone(t, sleeper)
	if paths, _ := namespaces(run); len(paths) != 0 {
		t.Fatalf("left behind: %v", paths)
	}
	if _, err := os.Stat(stateDir + "/" + run); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("state of run %s left behind (%v)", run, err)
	}
	if _, err := os.Stat(pins(run)); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("pins of run %s left behind (%v)", run, err)
	}
	connect(t, live.Client, live.Servers[0], live.Servers[0].Addr)
}

const childEnv = "PROFFER_TESTBED_CHILD"

// TestMain is a child of a test when its environment asks for it.
func TestMain(m *testing.M) {
	mode := strings.Fields(os.Getenv(childEnv))
	if len(mode) == 0 {
		os.Exit(m.Run())
	}
	var err error
	switch mode[0] {
	case "bed":
		err = liveUntilKilled()
	case "listen":
		err = listen(mode[1])
	default:
		err = fmt.Errorf("unknown mode %q", mode)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// pin pins a map in the node's directory, as a daemon would.
func pin(t *testing.T, n *Node) string {
	t.Helper()
	if err := os.MkdirAll(n.Pin(), 0o700); err != nil {
		t.Fatal(err)
	}
	m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 4, MaxEntries: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	path := filepath.Join(n.Pin(), "map")
	if err := m.Pin(path); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestPins(t *testing.T) {
	a, b := up(t, Config{Servers: 1}), up(t, Config{Servers: 1})
	other := pin(t, b.Servers[0])
	mine := pin(t, a.Servers[0])
	pin(t, a.LBs[0])
	if a.Servers[0].Pin() == b.Servers[0].Pin() || !strings.HasSuffix(a.Servers[0].Pin(), "/s1") {
		t.Fatalf("pins at %s and %s", a.Servers[0].Pin(), b.Servers[0].Pin())
	}
	// A node's processes see them, for the file system is the machine's.
	if err := start(t, a.Servers[0], "test", "-e", mine).Wait(); err != nil {
		t.Fatalf("a process does not see its node's pins: %v", err)
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(pins(a.Run)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("pins of a closed bed are left (%v)", err)
	}
	if _, err := os.Stat(other); err != nil {
		t.Errorf("pins of another bed: %v", err)
	}
}

// liveUntilKilled builds a bed, kills and revives in it, leaves pins, a process
// and its child, reports run and pids, and waits to be killed. It gives up by
// itself after a minute.
func liveUntilKilled() error {
	b, err := Up(context.Background(), Config{Servers: 3, LBs: 2, Delay: Delay{Mean: time.Millisecond}})
	if err != nil {
		return err
	}
	defer b.Close()
	for _, n := range []*Node{b.LBs[0], b.Servers[0]} {
		if err := b.Kill(n); err != nil {
			return err
		}
	}
	if err := b.Revive(context.Background(), b.LBs[0]); err != nil {
		return err
	}
	if _, err := b.Behind(b.Servers[1], RoutedVeth); err != nil {
		return err
	}
	if err := os.MkdirAll(b.LBs[0].Pin(), 0o700); err != nil {
		return err
	}
	p, err := b.Servers[2].Start(context.Background(), "sh", "-c", "sleep 1000 & echo $!; wait")
	if err != nil {
		return err
	}
	for p.Log() == "" {
		time.Sleep(time.Millisecond)
	}
	fmt.Println(b.Run, p.Pid(), p.Log())
	time.Sleep(time.Minute)
	return nil
}
