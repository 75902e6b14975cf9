package plane

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"proffer/dataplane"
	"proffer/dataplane/objects"
)

// Suspects returns the senders of signals without a valid tag, and how many packets of each
// were dropped since it was met.
func (p *Plane) Suspects() (found []dataplane.Suspect, err error) {
	var i uint32
	var s objects.LBSuspect
	all := p.SuspectMap.Iterate()
	for all.Next(&i, &s) {
		if s.Packets == 0 {
			continue
		}
		var addr [16]byte
		binary.NativeEndian.PutUint64(addr[:], s.SenderBe)
		found = append(found, dataplane.Suspect{Sender: netip.PrefixFrom(netip.AddrFrom16(addr), 64), Packets: s.Packets})
	}
	if err := all.Err(); err != nil {
		return nil, fmt.Errorf("read the senders without a valid tag: %w", err)
	}
	return found, nil
}
