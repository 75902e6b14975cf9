package hook

import (
	"encoding/binary"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// WhyGeneric is the kernel's reason why XDP cannot run in the driver of a link. A bpf_link, which
// failed with err, has a number alone; a second attempt by netlink has the words.
func WhyGeneric(dev int, prog *ebpf.Program, err error) string {
	s, sockErr := nl.Subscribe(unix.NETLINK_ROUTE)
	if sockErr != nil {
		return err.Error()
	}
	defer s.Close()
	if s.SetExtAck(true) != nil {
		return err.Error()
	}
	again := setXDP(s, dev, int32(prog.FD()))
	if again != nil {
		return again.Error()
	}
	if undone := setXDP(s, dev, -1); undone != nil { // a passing reason
		return fmt.Sprintf("%v; and: %v", err, undone)
	}
	return err.Error()
}

// setXDP puts a program into the driver of a link that has none, or with -1 removes it.
func setXDP(s *nl.NetlinkSocket, dev int, prog int32) error {
	flags := uint32(nl.XDP_FLAGS_DRV_MODE)
	if prog >= 0 {
		flags |= nl.XDP_FLAGS_UPDATE_IF_NOEXIST
	}
	request := nl.NewNetlinkRequest(unix.RTM_SETLINK, unix.NLM_F_ACK)
	request.Sockets = map[int]*nl.SocketHandle{unix.NETLINK_ROUTE: {Socket: s}}
	message := nl.NewIfInfomsg(unix.AF_UNSPEC)
	message.Index = int32(dev)
	request.AddData(message)
	xdp := nl.NewRtAttr(unix.IFLA_XDP|unix.NLA_F_NESTED, nil)
	xdp.AddRtAttr(nl.IFLA_XDP_FD, binary.NativeEndian.AppendUint32(nil, uint32(prog)))
	xdp.AddRtAttr(nl.IFLA_XDP_FLAGS, binary.NativeEndian.AppendUint32(nil, flags))
	request.AddData(xdp)
	_, err := request.Execute(unix.NETLINK_ROUTE, 0)
	return err
}
