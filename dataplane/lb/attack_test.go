package lb_test

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"testing"
	"time"

	"proffer/dataplane/objects"
	"proffer/proof/rig"
	"proffer/topo"
	"proffer/wire"
)

// clients send the same few frames for many clients, of which only an address differs.
type clients struct {
	*rig.LB
	frames [][]byte
	at     []int // where the client's address has 32 bits of its own
}

const clientBits = 4 // in an address of the client

func newClients(r *rig.LB, frames ...[]byte) *clients {
	c := &clients{LB: r, frames: frames}
	own := rig.ServerLocator(1).Addr().As16()
	for _, f := range frames {
		at := rig.AtDst - 16 // a client's own packet
		if slices.Equal(f[at:at+8], own[:8]) {
			at = rig.AtUpper + 24 // inside a server's signal
		}
		c.at = append(c.at, at+clientBits)
	}
	return c
}

// send is one frame of client i, as it would be at that time; checksums are not the LB's
// business.
func (c *clients) send(t *testing.T, frame int, i uint32) {
	binary.BigEndian.PutUint32(c.frames[frame][c.at[frame]:], i)
	if out := c.Run(t, c.frames[frame]); out.Action != rig.XDPTX {
		t.Fatalf("frame %d of client %d: action %d", frame, i, out.Action)
	}
}

// packet is client i's packet p.
func (c *clients) packet(p rig.Packet, i uint32) rig.Packet {
	a := rig.ClientAddr.As16()
	binary.BigEndian.PutUint32(a[clientBits:], i)
	p.Src = netip.AddrPortFrom(netip.AddrFrom16(a), p.Src.Port())
	return p
}

// sinceCounts is how much counters grew since before.
func sinceCounts(t *testing.T, r *rig.LB, before []uint64) map[string]uint64 {
	t.Helper()
	grown := map[string]uint64{}
	for i, n := range r.Counts(t) {
		grown[r.Names[i]] = n - before[i]
	}
	return grown
}

// connects is a TCP connection's frames: the server's SYN-ACK, the client's ACK, its FIN and
// the server's.
func connects(port uint16) [][]byte {
	ack, fin := rig.Inward(port, wire.ACK), rig.Inward(port, wire.FIN|wire.ACK)
	ack.Seq, ack.Ack = rig.ClientISN+1, rig.ServerISN+1
	fin.Seq, fin.Ack = ack.Seq, ack.Ack
	generation := wire.Generation(rig.ClientISN)
	return [][]byte{
		rig.SignalFrom(1, rig.SynAck(port), wire.CreateStickiness, generation), ack.Frame(), fin.Frame(),
		rig.SignalFrom(1, rig.Outward(port, wire.FIN|wire.ACK), wire.RemoveStickiness, generation),
	}
}

// anyClient gives all clients a next hop.
func anyClient(t *testing.T, r *rig.LB) {
	t.Helper()
	hops := topo.NextHops{netip.MustParsePrefix("::/0"): rig.RouterMAC}
	for i := range 8 {
		hops[rig.ServerLocator(i)] = rig.HopMAC(i)
	}
	if err := r.SetNextHops(hops); err != nil {
		t.Fatal(err)
	}
}

// TestTableAttacks: 1,100 flows a second for as long as fill the default table, of which
// none is swept, as the daemon is dead. Then 1,000 of 1,000 new connections of another
// service find room, while the attack goes on; and 500 connections that send every two
// seconds keep their entries.
func TestTableAttacks(t *testing.T) {
	const rate, long, fresh = 1100, 500, 1000
	udp := rig.Hunting(2, 2, rig.OverUDP)
	datagram := rig.Datagram(rig.HuntPort, "datagram")
	answer := datagram.Reply(0)
	for _, c := range []struct {
		label  string
		frames [][]byte // of each flow, at once
	}{
		{"two datagrams", [][]byte{rig.SignalFrom(1, answer, wire.CreateStickiness, 1), datagram.Frame()}},
		{"half-closed", connects(rig.HuntPort)[:3]},
		{"closed", connects(rig.HuntPort)},
	} {
		t.Run(c.label, func(t *testing.T) {
			rig.Enter(t)
			cfg := rig.LBConfig(rig.Hunting(2, 2), rig.Hunting(2, 2, rig.At81), udp)
			cfg.Flows.Entries = 262144 // the default
			r := rig.LoadLB(t, rig.Hits{}, cfg)
			anyClient(t, r)
			attack, kept := newClients(r, c.frames...), newClients(r, connects(81)...)
			for i := range uint32(long) {
				kept.send(t, 0, i)
				kept.send(t, 1, i)
			}
			slots, attacker := uint32(r.Lines)*uint32(objects.LineEntries), uint32(0)
			come := func(more int) { // flows of the attack
				for range more {
					for k := range attack.frames {
						attack.send(t, k, attacker)
					}
					attacker++
				}
			}
			for s := 0; attacker < slots*11/10; s++ {
				r.At(t, rig.Start+time.Duration(s)*time.Second)
				come(rate)
				for i := range uint32(long) {
					if s%2 == 0 {
						kept.send(t, 1, i)
					}
				}
			}
			before := r.Counts(t)
			for i := range uint32(fresh) {
				if i%100 == 0 {
					r.At(t, r.Now+100*time.Millisecond)
				}
				kept.send(t, 0, long+i)
				come(rate / 1000) // in the connection's round trip of 1 ms
				kept.send(t, 1, long+i)
			}
			grown := sinceCounts(t, r, before)
			t.Logf("%d flows of the attack; %v", attacker, grown)
			if n := grown["flow_established"]; grown["table_full"] > 0 || n < fresh || grown["recover"] > 0 {
				t.Errorf("of %d new connections and as many flows of the attack %d were established, %d packets met a full table, %d no entry", fresh, n, grown["table_full"], grown["recover"])
			}
			for i := range uint32(long + fresh) {
				p := kept.packet(rig.Inward(81, wire.ACK), i)
				if e, known := r.Flow(t, p.Flow()); !known || e.Server != 1 {
					t.Fatalf("connection %d has no entry: %+v", i, e)
				}
			}
		})
	}
}

// TestShortConnections: the capacity in connections a second that docs/operate/farm.md states,
// without a daemon that sweeps: a slot serves again 4.3 s after the last packet of a closed
// connection. Twice as many find the table full.
func TestShortConnections(t *testing.T) {
	const entries, lasts = 8192, time.Second
	const second = 10 // steps
	for _, c := range []struct {
		load float64
		full bool
	}{{1, false}, {2, true}} {
		rig.Enter(t)
		cfg := rig.LBConfig(rig.Hunting(2, 2))
		cfg.Flows.Entries = entries
		r := rig.LoadLB(t, rig.Hits{}, cfg)
		anyClient(t, r)
		conns := newClients(r, connects(rig.HuntPort)...)
		rate := int(c.load * entries / (lasts + 4300*time.Millisecond).Seconds())
		var begun, ended uint32
		before := r.Counts(t)
		for step := range 20 * second {
			r.At(t, rig.Start+time.Duration(step)*time.Second/second)
			for range rate / second {
				conns.send(t, 0, begun)
				conns.send(t, 1, begun)
				begun++
			}
			if step < second {
				continue
			}
			for range rate / second {
				conns.send(t, 2, ended)
				conns.send(t, 3, ended)
				ended++
			}
		}
		grown := sinceCounts(t, r, before)
		t.Logf("%d entries, connections of %v, %d a second: %d begun, %d met a full table", entries, lasts, rate, begun, grown["table_full"])
		if full := grown["table_full"] > 0; full != c.full {
			t.Errorf("%d connections a second: %d of %d met a full table", rate, grown["table_full"], begun)
		}
	}
}
