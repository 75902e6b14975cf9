package dataplane

import (
	"fmt"
	"os"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/features"
	"github.com/cilium/ebpf/rlimit"
	"golang.org/x/sys/unix"
)

// oldest is the first kernel with all features that the programs use.
var oldest = [2]int{6, 1}

const kernelBTF = "/sys/kernel/btf/vmlinux"

// Preflight returns in one line the reason why this host cannot run a data plane, or nil.
func Preflight() error {
	if err := capable(); err != nil {
		return err
	}
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return fmt.Errorf("read the kernel's version: %w", err)
	}
	if err := kernelRecent(unix.ByteSliceToString(name.Release[:])); err != nil {
		return err
	}
	if _, err := os.Stat(kernelBTF); err != nil {
		return fmt.Errorf("this kernel has no BTF (%s): use one built with CONFIG_DEBUG_INFO_BTF=y, as Debian's are", kernelBTF)
	}
	if err := features.HaveProgramType(ebpf.XDP); err != nil {
		return fmt.Errorf("this kernel or container refuses XDP programs (CONFIG_BPF_SYSCALL, CAP_BPF, CAP_NET_ADMIN): %w", err)
	}
	if err := rlimit.RemoveMemlock(); err != nil {
		return fmt.Errorf("lift the limit of locked memory for eBPF maps: %w", err)
	}
	return nil
}

// needed are the capabilities without which the kernel refuses a part of a data plane
// (capabilities(7)). CAP_SYS_ADMIN stands for the last two.
var needed = []struct {
	name        string
	number      int
	asSysAdmin  bool
	consequence string
}{
	{"CAP_NET_ADMIN", unix.CAP_NET_ADMIN, false, "attach programs to links and write neighbours"},
	{"CAP_BPF", unix.CAP_BPF, true, "load programs and maps"},
	{"CAP_PERFMON", unix.CAP_PERFMON, true, "have programs verified that compare pointers"},
}

// capable returns an error that names the capabilities that this process lacks.
func capable() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var have [2]unix.CapUserData
	if err := unix.Capget(&header, &have[0]); err != nil {
		return fmt.Errorf("read the capabilities of this process: %w", err)
	}
	return lacks(uint64(have[0].Effective) | uint64(have[1].Effective)<<32)
}

func lacks(effective uint64) error {
	has := func(number int) bool { return effective>>number&1 != 0 }
	var missing []string
	for _, c := range needed {
		if !has(c.number) && !(c.asSysAdmin && has(unix.CAP_SYS_ADMIN)) {
			missing = append(missing, fmt.Sprintf("%s (%s)", c.name, c.consequence))
		}
	}
	if missing == nil {
		return nil
	}
	return fmt.Errorf("missing %s: run it with sudo, or with these capabilities", strings.Join(missing, ", "))
}

// kernelRecent refuses a release, as uname prints it, older than oldest.
func kernelRecent(release string) error {
	var major, minor int
	if _, err := fmt.Sscanf(release, "%d.%d", &major, &minor); err != nil {
		return fmt.Errorf("kernel release %q: expected MAJOR.MINOR: %w", release, err)
	}
	if major < oldest[0] || major == oldest[0] && minor < oldest[1] {
		return fmt.Errorf("kernel %s is too old: Proffer needs %d.%d or newer", release, oldest[0], oldest[1])
	}
	return nil
}
