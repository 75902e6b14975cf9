package listeners

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Of sock_diag(7) and linux/inet_diag.h.
const (
	sockDiagByFamily = 20
	tcpListen        = 10

	diagRequest = 56 // bytes of struct inet_diag_req_v2
	diagMessage = 72 // and of struct inet_diag_msg
	diagPort    = 4  // offsets in the latter
	diagAddress = 8
	diagInode   = 68
)

// diagnosed asks the kernel for the TCP sockets of this network namespace that listen.
func diagnosed() (all []socket, err error) {
	for _, family := range []byte{unix.AF_INET, unix.AF_INET6} {
		body := make([]byte, diagRequest)
		body[0], body[1] = family, unix.IPPROTO_TCP
		binary.NativeEndian.PutUint32(body[4:], 1<<tcpListen)
		request := nl.NewNetlinkRequest(sockDiagByFamily, unix.NLM_F_DUMP)
		request.AddRawData(body)
		answers, err := request.Execute(unix.NETLINK_INET_DIAG, 0)
		if err != nil {
			return nil, fmt.Errorf("ask for the sockets that listen: %w", err)
		}
		for _, a := range answers {
			if len(a) < diagMessage {
				continue
			}
			addr := netip.AddrFrom4([4]byte(a[diagAddress:]))
			if a[0] == unix.AF_INET6 {
				addr = netip.AddrFrom16([16]byte(a[diagAddress:])).Unmap()
			}
			local := netip.AddrPortFrom(addr, binary.BigEndian.Uint16(a[diagPort:]))
			all = append(all, socket{local, uint64(binary.NativeEndian.Uint32(a[diagInode:]))})
		}
	}
	return all, nil
}
