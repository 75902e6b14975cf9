package agent

import (
	"fmt"
	"os"

	"github.com/vishvananda/netlink"
)

// netnsID returns the number that this network namespace has for the namespace at path,
// such as /run/netns/NAME or /proc/PID/ns/net. It assigns a number if there is none.
func netnsID(path string) (int32, error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, fmt.Errorf("open network namespace: %w", err)
	}
	defer f.Close()
	id, err := netlink.GetNetNsIdByFd(int(f.Fd()))
	if err == nil && id < 0 {
		const any = -1 // NETNSA_NSID: the kernel chooses
		if err = netlink.SetNetNsIdByFd(int(f.Fd()), any); err == nil {
			id, err = netlink.GetNetNsIdByFd(int(f.Fd()))
		}
	}
	if err != nil {
		return 0, fmt.Errorf("number network namespace %s (is it a namespace?): %w", path, err)
	}
	if id < 0 {
		return 0, fmt.Errorf("network namespace %s has no number", path)
	}
	return int32(id), nil
}
