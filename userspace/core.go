package userspace

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"proffer/dataplane"
	"proffer/topo"
	"proffer/wire"
)

// Core is the functions of a core in user space, with the core's links and socket.
type Core struct {
	number    int
	cpu       int // that it has for itself, or -1
	pair      pair
	socket    *socket
	functions map[int]Function // by service
	malformed atomic.Uint64
}

// Open makes all that a core of a node needs; Run handles its packets.
func Open(cfg *topo.Datapath, core int) (_ *Core, err error) {
	c := &Core{number: core, cpu: -1, functions: map[int]Function{}}
	if cfg.Spread {
		c.cpu = core
	}
	for _, chain := range cfg.Chains {
		for _, f := range chain.Functions {
			if u, ok := f.(topo.User); ok {
				if c.functions[chain.Service], err = New(u.Run); err != nil {
					return nil, err
				}
			}
		}
	}
	if c.pair, err = openPair(cfg.Server, core, cfg.Link); err != nil {
		return nil, err
	}
	if c.socket, err = openSocket(c.pair.far.Index); err != nil {
		return nil, errors.Join(err, c.pair.close())
	}
	return c, nil
}

// Join calls f with the core, its pair of links, and the socket at the far link.
func (c *Core) Join(f func(core int, near, far *net.Interface, socket int) error) error {
	return f(c.number, c.pair.near, c.pair.far, c.socket.fd)
}

// Run polls the socket until ctx ends, and never sleeps: it takes a CPU.
func (c *Core) Run(ctx context.Context) error {
	runtime.LockOSThread() // which ends with the goroutine
	if c.cpu >= 0 {
		var own unix.CPUSet
		own.Set(c.cpu)
		if err := unix.SchedSetaffinity(0, &own); err != nil {
			return fmt.Errorf("give core %d CPU %d: %w", c.number, c.cpu, err)
		}
	}
	var over atomic.Bool
	defer context.AfterFunc(ctx, func() { over.Store(true) })()
	for !over.Load() {
		c.socket.poll(c.handle)
	}
	return nil
}

// handle calls the function of a frame's service, and reports whether the packet goes on.
func (c *Core) handle(frame []byte) bool {
	tunnel, packet, err := wire.ParseTunnel(frame)
	f := c.functions[tunnel.Instance.Service]
	if err != nil || !isIP(packet) || f == nil {
		c.malformed.Add(1)
		return false
	}
	switch f.Packet(packet, tunnel.Inward) {
	case Drop:
		return false
	case Changed:
		wire.SetUpdate(frame)
	}
	return true
}

// isIP reports whether a packet begins with a whole IP header.
func isIP(packet []byte) bool {
	return len(packet) >= wire.IPv6Bytes && packet[0]>>4 == 6 || len(packet) >= wire.IPv4Bytes && packet[0]>>4 == 4
}

// Counters are those of the functions, and of the socket.
func (c *Core) Counters() (all []dataplane.Counter, err error) {
	for _, f := range c.functions {
		all = append(all, f.Counters()...)
	}
	lost, err := c.socket.lost()
	return append(all, dataplane.Counter{Name: "user_lost", Value: lost}, dataplane.Counter{Name: "user_malformed", Value: c.malformed.Load()}), err
}

// Close removes the socket and the links.
func (c *Core) Close() error { return errors.Join(c.socket.close(), c.pair.close()) }
