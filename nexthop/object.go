package nexthop

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// objects are the kernel's nexthop objects, by their numbers. A route by such an object has the number alone where
// net.ipv4.nexthop_compat_mode is 0.
type objects map[uint32]object

type object struct {
	hop     nextHop
	dead    bool     // a blackhole
	members []uint32 // of a group
}

// hops are the next hops of an object, a group's in their order.
func (known objects) hops(id uint32) (hops []nextHop, dead bool) {
	o := known[id]
	if len(o.members) == 0 {
		return []nextHop{o.hop}, o.dead
	}
	for _, m := range o.members { // of groups the kernel allows no group
		member := known[m]
		dead = dead || member.dead // the kernel allows it alone
		hops = append(hops, member.hop)
	}
	return hops, dead
}

// readObjects reads the nexthop objects.
func (w *Watcher) readObjects() error {
	w.objects = objects{}
	err := dump(unix.RTM_GETNEXTHOP, unix.RTM_NEWNEXTHOP, header(make([]byte, sizeofNhmsg)), func(m []byte) {
		if id, o := parseObject(m); id != 0 {
			w.objects[id] = o
		}
	})
	if errors.Is(err, unix.EOPNOTSUPP) { // a kernel without
		return nil
	}
	if err != nil {
		return fmt.Errorf("list nexthop objects: %w", err)
	}
	return nil
}

const (
	sizeofNhmsg = 8  // struct nhmsg: family, scope, protocol, 0, flags
	rtaObject   = 30 // RTA_NH_ID of linux/rtnetlink.h
)

// header is the fixed part of a message.
type header []byte

func (h header) Len() int          { return len(h) }
func (h header) Serialize() []byte { return h }

var _ nl.NetlinkRequestData = header(nil)

// parseObject reads struct nhmsg and its attributes.
func parseObject(m []byte) (id uint32, o object) {
	if len(m) < sizeofNhmsg {
		return 0, o
	}
	o.hop.flags = uint8(binary.NativeEndian.Uint32(m[4:]))
	for kind, value := range attributes(m[sizeofNhmsg:]) {
		switch kind {
		case unix.NHA_ID:
			id = number(value)
		case unix.NHA_GROUP: // struct nexthop_grp, each of 8 bytes with the number first
			for ; len(value) >= 8; value = value[8:] {
				o.members = append(o.members, number(value))
			}
		case unix.NHA_BLACKHOLE:
			o.dead = true
		case unix.NHA_OIF:
			o.hop.link = int(number(value))
		case unix.NHA_GATEWAY:
			o.hop.gateway = addrOf(value)
		}
	}
	return id, o
}
