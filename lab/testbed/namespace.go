package testbed

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"unsafe"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

const (
	namespaceDir = "/run/netns" // where `ip netns` looks
	ownNamespace = "/proc/thread-self/ns/net"
)

// namespacePrefix begins the name of every namespace of a run. A run has no
// dash in it, so that no run's prefix begins another's.
func namespacePrefix(run string) string { return "proffer-" + run + "-" }

// sysctl is a path below /proc/sys and the value it gets.
type sysctl struct{ path, value string }

// able returns in one line the reason why no bed can be built, if so.
func able() error {
	if os.Geteuid() != 0 {
		return errors.New("testbed: needs root (CAP_NET_ADMIN, CAP_SYS_ADMIN): run it with sudo")
	}
	if _, err := os.Stat("/proc/sys/net/ipv6"); err != nil {
		return errors.New("testbed: this kernel runs without IPv6: boot it without ipv6.disable=1")
	}
	return nil
}

// explain adds the remedy to the kernel's error when it has no namespaces.
func explain(err error) error {
	switch {
	case errors.Is(err, unix.EPERM):
		return fmt.Errorf("%w: needs CAP_NET_ADMIN, CAP_SYS_ADMIN and CAP_BPF: in a container, run it with --privileged", err)
	case errors.Is(err, unix.ENOSPC):
		return fmt.Errorf("%w: no more namespaces: raise /proc/sys/user/max_net_namespaces", err)
	case errors.Is(err, unix.ENOSYS):
		return fmt.Errorf("%w: the kernel lacks BPF: build it with CONFIG_BPF_SYSCALL", err)
	case errors.Is(err, unix.EOPNOTSUPP):
		return fmt.Errorf("%w: the kernel lacks veth: modprobe veth, or build it with CONFIG_VETH", err)
	}
	return err
}

// shareNamespaceDir makes the directory of namespaces a shared mount of its
// own, as the first `ip netns add` does. If we did not, that first one would
// stack a second mount on each of our namespaces, and they could not be removed.
func shareNamespaceDir() error {
	if err := os.MkdirAll(namespaceDir, 0o755); err != nil {
		return fmt.Errorf("testbed: %w", err)
	}
	lock, err := lockDir(namespaceDir, unix.LOCK_EX)
	if err != nil {
		return err
	}
	defer lock.Close()
	err = unix.Mount("", namespaceDir, "none", unix.MS_SHARED|unix.MS_REC, "")
	if !errors.Is(err, unix.EINVAL) {
		return wrap("testbed: share "+namespaceDir, err)
	}
	if err := unix.Mount(namespaceDir, namespaceDir, "none", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("testbed: mount %s: %w", namespaceDir, err)
	}
	return wrap("testbed: share "+namespaceDir, unix.Mount("", namespaceDir, "none", unix.MS_SHARED|unix.MS_REC, ""))
}

func wrap(action string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", action, err)
}

// space is a namespace while the bed is being built: the ways into it that do
// not depend on the thread. The zero space is closed.
type space struct {
	ns      *os.File
	netlink *netlink.Handle
	ethtool int // any socket will do for SIOCETHTOOL
}

func (s *space) close() {
	if s.ns == nil {
		return
	}
	s.ns.Close()
	s.netlink.Close()
	unix.Close(s.ethtool)
	*s = space{}
}

// create makes the node's namespace, names it and sets its sysctls, before
// there is any interface that could miss them.
func (n *Node) create() error {
	return elsewhere(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("make network namespace: %w", err)
		}
		if err := name(n.Path()); err != nil {
			return err
		}
		if err := setAll(n.bed.fresh.differing(n.plan.sysctls)); err != nil {
			return err
		}
		return n.open()
	})
}

// fresh remembers sysctls of a new namespace, which are the same in all, so
// that only those are written that have to change: a fifth of the time that a
// bed takes to build.
type fresh struct {
	mu     sync.Mutex
	values map[string]string
}

// differing are those of the sysctls that do not have their value in the
// thread's namespace, which is new.
func (f *fresh) differing(sysctls []sysctl) (others []sysctl) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.values == nil {
		f.values = make(map[string]string)
	}
	for _, s := range sysctls {
		value, known := f.values[s.path]
		if !known { // unreadable is unlike any value: writing tells why
			text, _ := os.ReadFile(filepath.Join("/proc/sys", s.path))
			value = strings.TrimSpace(string(text))
			f.values[s.path] = value
		}
		if value != s.value {
			others = append(others, s)
		}
	}
	return others
}

// setAll sets sysctls in the thread's namespace.
func setAll(sysctls []sysctl) error {
	for _, s := range sysctls {
		if err := os.WriteFile(filepath.Join("/proc/sys", s.path), []byte(s.value), 0); err != nil {
			return fmt.Errorf("set sysctl: %w", err)
		}
	}
	return nil
}

// name binds the thread's namespace to a path, which keeps it alive.
func name(path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDONLY, 0o444)
	if err != nil {
		return err
	}
	f.Close()
	return wrap("name network namespace "+path, unix.Mount(ownNamespace, path, "none", unix.MS_BIND, ""))
}

// unname lets go of the namespace bound to a path. It ends with the last
// process and socket inside.
func unname(path string) error {
	// EINVAL: its maker died between creating the file and mounting on it.
	if err := unix.Unmount(path, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("unmount %s: %w", path, err)
	}
	return os.Remove(path)
}

// open fills n.space from the thread's namespace.
func (n *Node) open() error {
	ns, err := os.Open(ownNamespace)
	if err != nil {
		return err
	}
	handle, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		ns.Close()
		return fmt.Errorf("open netlink: %w", err)
	}
	ethtool, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		ns.Close()
		handle.Close()
		return fmt.Errorf("open socket: %w", err)
	}
	n.space = space{ns: ns, netlink: handle, ethtool: ethtool}
	return nil
}

// elsewhere runs f on the calling goroutine, which f may move to another
// network namespace, and moves it back. Should that fail, the goroutine stays
// locked to its thread, which the runtime throws away with it.
func elsewhere(f func() error) (err error) {
	runtime.LockOSThread()
	home, err := os.Open(ownNamespace)
	if err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("open own network namespace: %w", err)
	}
	defer func() { // also when f panics or ends the goroutine (t.Fatal)
		back := unix.Setns(int(home.Fd()), unix.CLONE_NEWNET)
		home.Close()
		if back != nil {
			err = errors.Join(err, fmt.Errorf("return to own network namespace: %w", back))
			return
		}
		runtime.UnlockOSThread()
	}()
	return f()
}

// enter moves the calling thread into the namespace at path.
func enter(path string) error {
	ns, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("enter network namespace: %w", err)
	}
	defer ns.Close()
	return wrap("enter network namespace "+path, unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET))
}

// ethtoolValue is struct ethtool_value of linux/ethtool.h.
type ethtoolValue struct {
	command uint32
	data    uint32
}

// ethtoolRequest is struct ifreq of linux/if.h with ifr_data in use.
type ethtoolRequest struct {
	name  [unix.IFNAMSIZ]byte
	value *ethtoolValue
	_     [16]byte // the rest of the union
}

// offload makes a veth end send frames as on a wire: whole checksums and
// lengths within the MTU. The kernel leaves the checksum of a locally made
// packet partial for the device to finish; veth never does, so a program that
// sends the packet elsewhere (XDP_TX, redirect) would freeze it wrong.
func (s *space) offload(name string) error {
	features := []ethtoolValue{
		{unix.ETHTOOL_STSO, 0},
		{unix.ETHTOOL_STXCSUM, 0},
	}
	for _, f := range features {
		if err := ethtool(s.ethtool, name, f); err != nil {
			return fmt.Errorf("set offload %#x of %s to %d: %w", f.command, name, f.data, err)
		}
	}
	return nil
}

func ethtool(socket int, name string, value ethtoolValue) error {
	request := ethtoolRequest{value: &value}
	copy(request.name[:unix.IFNAMSIZ-1], name)
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(socket), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&request)))
	runtime.KeepAlive(&value)
	if errno != 0 {
		return errno
	}
	return nil
}

// WholeFrames makes a veth end of the calling thread's namespace send frames as on a wire, and
// take those that a program redirects to it.
func WholeFrames(name string) error {
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open socket: %w", err)
	}
	defer unix.Close(socket)
	s := space{ethtool: socket}
	if err := s.offload(name); err != nil {
		return err
	}
	if err := ethtool(socket, name, ethtoolValue{unix.ETHTOOL_SGRO, 1}); err != nil { // GRO has NAPI
		return fmt.Errorf("turn GRO of %s on: %w", name, err)
	}
	return nil
}
