package rig

import (
	"encoding/binary"
	"net/netip"
	"testing"

	"proffer/wire"
)

func CrowdClient(flow uint32) netip.AddrPort {
	b := ClientAddr.As16()
	binary.BigEndian.PutUint16(b[14:], uint16(1+flow>>15))
	return netip.AddrPortFrom(netip.AddrFrom16(b), uint16(1+flow&0x7fff))
}

func CrowdFlow(flow uint32) Packet {
	p := Inward(HuntPort, wire.ACK)
	p.Src, p.Ack = CrowdClient(flow), ServerISN+1
	return p
}

// WellFormed holds the table at rest against flow_table.h: no entry is half made or
// moving, none twice, each has its hint, and each line counts its displaced entries.
func (r *LB) WellFormed(t testing.TB) {
	t.Helper()
	all, counted := map[uint64]bool{}, make([]int, r.Lines)
	for at := range r.Lines {
		l := r.Table.line(t, at)
		hints, _, _ := r.Table.hints(t, at)
		for i, fp := range l.Fingerprint {
			if i == 0 {
				counted[at] += int(fp & Displaced / OneDisplaced)
			}
			if (fp < Away) != (l.Word[i] == 0) || l.Word[i]&WordMoving != 0 {
				t.Errorf("line %d, entry %d: fingerprint %x, word %x", at, i, fp, l.Word[i])
			}
			if hints[i] != HintOf(fp) {
				t.Errorf("line %d, entry %d: fingerprint %x, hint %x", at, i, fp, hints[i])
			}
			if fp < Away {
				continue
			}
			digest := fp >> DigestShift
			if all[digest] {
				t.Errorf("digest %x twice", digest)
			}
			all[digest] = true
			if fp&Away != 0 {
				counted[alternateOf(at, digest, r.Lines)]--
			}
		}
	}
	for at, n := range counted {
		if n != 0 {
			t.Errorf("line %d counts %d displaced entries too many", at, n)
		}
	}
	if len(all) == 0 {
		t.Error("the table is empty")
	}
}
