// Package listeners finds the processes that take the connections of a service on this host, by
// the kernel's sockets that listen and the open files of each process.
package listeners

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"proffer/foreign"
	"proffer/topo"
)

// Process is a process that listens.
type Process struct {
	PID    int    // 0: it cannot be seen without CAP_SYS_PTRACE
	Name   string // of its program
	Cgroup string // in the unified hierarchy
	TLS    bool   // a library for TLS is in its memory
}

// String names it for a reader: "apache2 (process 7, system.slice/apache2.service)".
func (p Process) String() string {
	if p.PID == 0 {
		return "a process that the agent cannot see without CAP_SYS_PTRACE"
	}
	text := fmt.Sprintf("%s (process %d", p.Name, p.PID)
	if p.Cgroup != "" {
		text += ", " + p.Cgroup
	}
	if p.TLS {
		text += ", can speak TLS"
	}
	return text + ")"
}

// Of finds the processes that listen at each of some VIPs in a network namespace, an empty path for
// this one: of processes that share a socket the first, their parent. proc is /proc.
func Of(proc, namespace string, vips []topo.VIP) (map[topo.VIP][]Process, error) {
	at := map[uint64][]topo.VIP{} // by the inode of a socket
	err := foreign.Within(namespace, func() error { return socketsOf(proc, vips, at) })
	if err != nil {
		return nil, err
	}
	if len(at) == 0 {
		return map[topo.VIP][]Process{}, nil
	}
	return holders(proc, at)
}

// socketsOf adds the sockets of this network namespace that take the packets of VIPs.
func socketsOf(proc string, vips []topo.VIP, at map[uint64][]topo.VIP) error {
	for _, protocol := range []topo.Protocol{topo.TCP, topo.UDP} {
		all, err := listening(proc, protocol)
		if err != nil {
			return err
		}
		for _, s := range all {
			for _, vip := range vips {
				if vip.Protocol == protocol && serves(s.local, vip) {
					at[s.inode] = append(at[s.inode], vip)
				}
			}
		}
	}
	return nil
}

// serves reports whether a socket's address takes the packets of a VIP.
func serves(local netip.AddrPort, vip topo.VIP) bool {
	addr := local.Addr()
	if local.Port() != vip.Port {
		return false
	}
	return addr == vip.Addr || addr.IsUnspecified() && (addr.Is6() || vip.Addr.Is4())
}

// socket is a socket that listens.
type socket struct {
	local netip.AddrPort
	inode uint64
}

// listening returns the sockets that listen, or, of UDP, have no peer. Those of TCP are asked of the
// kernel by state: its table in /proc/net has every connection, and takes a second to read where
// there are some hundred thousands. Kernels without tcp_diag have that table alone.
func listening(proc string, protocol topo.Protocol) (all []socket, err error) {
	if protocol == topo.TCP {
		if all, err = diagnosed(); !errors.Is(err, unix.ENOENT) {
			return all, err
		}
	}
	files, state := []string{"tcp", "tcp6"}, "0A"
	if protocol == topo.UDP {
		files, state = []string{"udp", "udp6"}, "07"
	}
	for _, name := range files {
		f, err := os.Open(filepath.Join(proc, "thread-self", "net", name))
		if errors.Is(err, fs.ErrNotExist) {
			continue // a kernel without IPv6
		}
		if err != nil {
			return nil, fmt.Errorf("read the sockets: %w", err)
		}
		all = append(all, sockets(f, state)...)
		f.Close()
	}
	return all, nil
}

// sockets reads those of a state (proc_net_tcp of the kernel's documentation).
func sockets(r io.Reader, state string) (all []socket) {
	for lines := bufio.NewScanner(r); lines.Scan(); {
		field := strings.Fields(lines.Text())
		if len(field) < 10 || field[3] != state {
			continue
		}
		local, ok := address(field[1])
		inode, err := strconv.ParseUint(field[9], 10, 64)
		if ok && err == nil && inode != 0 {
			all = append(all, socket{local, inode})
		}
	}
	return all
}

// address reads "0100007F:1F90": words of 32 bits in the host's byte order, and the port.
func address(text string) (netip.AddrPort, bool) {
	words, port, _ := strings.Cut(text, ":")
	b, err := hex.DecodeString(words)
	n, wrong := strconv.ParseUint(port, 16, 16)
	if err != nil || wrong != nil || len(b) != 4 && len(b) != 16 {
		return netip.AddrPort{}, false
	}
	for i := 0; i < len(b); i += 4 {
		binary.NativeEndian.PutUint32(b[i:], binary.BigEndian.Uint32(b[i:]))
	}
	addr, _ := netip.AddrFromSlice(b)
	return netip.AddrPortFrom(addr.Unmap(), uint16(n)), true
}

// holders finds the processes that have the sockets open.
func holders(proc string, at map[uint64][]topo.VIP) (map[topo.VIP][]Process, error) {
	names, err := os.ReadDir(proc)
	if err != nil {
		return nil, fmt.Errorf("list the processes: %w", err)
	}
	holds, unseen := map[topo.VIP][]int{}, maps.Clone(at)
	for _, entry := range names {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		for inode := range open(filepath.Join(proc, entry.Name(), "fd")) {
			delete(unseen, inode)
			for _, vip := range at[inode] {
				if !slices.Contains(holds[vip], pid) {
					holds[vip] = append(holds[vip], pid)
				}
			}
		}
	}
	found := map[topo.VIP][]Process{}
	for vip, pids := range holds {
		for _, pid := range pids {
			if len(found[vip]) < mostProcesses && !slices.Contains(pids, parent(proc, pid)) {
				found[vip] = append(found[vip], describe(proc, pid))
			}
		}
	}
	for _, vips := range unseen {
		for _, vip := range vips {
			if !slices.Contains(found[vip], Process{}) {
				found[vip] = append(found[vip], Process{})
			}
		}
	}
	return found, nil
}

// Bounds of our reading about processes, which make their files, their mappings and each other.
const (
	mostFiles     = 1 << 14 // open ones, of a process
	filesAtOnce   = 1024
	longestMaps   = 4 << 20 // bytes of the list of a process' mappings
	mostProcesses = 64      // of a service
)

// open returns the inodes of the sockets among the open files of a process.
func open(folder string) map[uint64]bool {
	f, err := os.Open(folder)
	if err != nil {
		return nil // it has ended, or is not ours to see
	}
	defer f.Close()
	inodes := map[uint64]bool{}
	for seen := 0; seen < mostFiles; {
		names, err := f.Readdirnames(filesAtOnce)
		for _, name := range names {
			link, err := os.Readlink(filepath.Join(folder, name))
			if err != nil {
				continue
			}
			if number, ok := strings.CutPrefix(link, "socket:["); ok {
				if inode, err := strconv.ParseUint(strings.TrimSuffix(number, "]"), 10, 64); err == nil {
					inodes[inode] = true
				}
			}
		}
		if seen += len(names); err != nil {
			break
		}
	}
	return inodes
}

// parent is that of a process, or 0.
func parent(proc string, pid int) int {
	stat, _ := os.ReadFile(fmt.Sprintf("%s/%d/stat", proc, pid))
	_, rest, _ := strings.Cut(string(stat[max(strings.LastIndexByte(string(stat), ')'), 0):]), " ")
	field := strings.Fields(rest)
	if len(field) < 2 {
		return 0
	}
	n, _ := strconv.Atoi(field[1])
	return n
}

func describe(proc string, pid int) Process {
	p := Process{PID: pid}
	folder := filepath.Join(proc, strconv.Itoa(pid))
	if exe, err := os.Readlink(filepath.Join(folder, "exe")); err == nil {
		p.Name = strings.TrimSuffix(filepath.Base(exe), " (deleted)")
	} else {
		comm, _ := os.ReadFile(filepath.Join(folder, "comm"))
		p.Name = strings.TrimSpace(string(comm))
	}
	groups, _ := os.ReadFile(filepath.Join(folder, "cgroup"))
	for line := range strings.Lines(string(groups)) {
		if path, unified := strings.CutPrefix(line, "0::/"); unified {
			p.Cgroup = strings.TrimSpace(path)
		}
	}
	p.TLS = speaksTLS(folder)
	return p
}

// speaksTLS reports whether a library for TLS is in the memory of a process.
func speaksTLS(folder string) bool {
	f, err := os.Open(filepath.Join(folder, "maps"))
	if err != nil {
		return false
	}
	defer f.Close()
	for lines := bufio.NewScanner(io.LimitReader(f, longestMaps)); lines.Scan(); {
		for _, library := range []string{"/libssl.so", "/libgnutls.so", "/mod_ssl.so", "/mod_gnutls.so"} {
			if bytes.Contains(lines.Bytes(), []byte(library)) {
				return true
			}
		}
	}
	return false
}
