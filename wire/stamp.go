package wire

import (
	"encoding/binary"
	"time"
)

// StampBytes is the length of a stamp.
const StampBytes = 16

// PutStamp makes a datagram with this payload arrive at a virtual core at an instant of
// CLOCK_MONOTONIC (struct virtual_stamp of bpf/edge/types.h).
func PutStamp(payload []byte, at time.Duration) {
	binary.LittleEndian.PutUint32(payload, uint32(VirtualStamp))
	binary.LittleEndian.PutUint32(payload[4:], 0)
	binary.LittleEndian.PutUint64(payload[8:], uint64(at))
}
