package hostcheck

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Router returns advice for a link by which packets come that leave this host by another link: without forwarding
// they are dropped. Of which families they are: IPv4 (4), IPv6 (6).
func Router(link string, families ...int) (advice []string) {
	for _, family := range families {
		paths := []string{setting(family, link, "forwarding")}
		if family == 6 { // the kernel asks for both
			paths = append(paths, setting(6, "all", "forwarding"))
		}
		for _, path := range paths {
			if value, err := Setting(path); err == nil && value == 0 {
				advice = append(advice, fmt.Sprintf("this host forwards no IPv%d packets that come by %s: `sysctl -qw %s=1`", family, link, path))
			}
		}
	}
	return advice
}

// SourceFilter returns advice for a link by which packets come that have sources behind other links: a strict filter
// drops them. IPv6 has none.
func SourceFilter(link string) []string {
	if own, all, err := Filters(link); err != nil || max(own, all) != strict {
		return nil
	}
	return []string{fmt.Sprintf("%s takes no packets with a source behind another link (rp_filter): `sysctl -qw %s=2`", link, setting(4, link, "rp_filter"))}
}

const strict = 1 // rp_filter; 2 is loose

// Filters are the filter of IPv4 sources of a link and that of all links, of which the kernel takes the larger value.
func Filters(link string) (own, all int, err error) {
	if own, err = Setting(setting(4, link, "rp_filter")); err == nil {
		all, err = Setting(setting(4, "all", "rp_filter"))
	}
	return own, all, err
}

// setting is the path of a link's setting. Its parts are apart by slashes, as a link's name may have dots.
func setting(family int, link, name string) string {
	return fmt.Sprintf("net/ipv%d/conf/%s/%s", family, link, name)
}

// Setting reads a setting of the kernel that is a number, by its path below /proc/sys.
func Setting(path string) (int, error) {
	text, err := os.ReadFile(filepath.Join("/proc/sys", path))
	if err != nil {
		return 0, fmt.Errorf("read a setting: %w", err)
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return 0, fmt.Errorf("read the setting %s: %w", path, err)
	}
	return n, nil
}
