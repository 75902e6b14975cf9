package raw

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"time"
)

// Flood sends SYNs of clients that do not exist: a SYN flood (RFC 4987).
type Flood struct {
	Interface string           // from which they leave
	NextHop   net.HardwareAddr // nil: the one that the kernel would send them to
	To        netip.AddrPort
	Clients   netip.Prefix // of To's family: each SYN is a random address's in it
	Rate      float64      // SYNs a second; 0: as many as go
	For       time.Duration
	Seed      uint64
	Enter     func() error // as Client's
}

// Run returns after For. When ctx ends or the interface fails, it returns the
// error and the frames sent so far.
func (f Flood) Run(ctx context.Context) (Sent, error) {
	var syns *synMaker
	err := Inside(f.Enter, func() error {
		header, err := ethernet(f.Interface, f.NextHop, f.To.Addr())
		if err == nil {
			syns, err = NewSYNMaker(header, f.To, f.Clients, rand.New(rand.NewPCG(f.Seed, 0)))
		}
		return err
	})
	if err != nil {
		return Sent{}, fmt.Errorf("flood %s: %w", f.To, err)
	}
	return Forge{Interface: f.Interface, Frame: syns.Next, Rate: f.Rate, For: f.For, Enter: f.Enter}.Run(ctx)
}
