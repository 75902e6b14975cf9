package dataplane

import (
	"errors"
	"fmt"
	"os"

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
	if os.Geteuid() != 0 {
		return errors.New("not root: Proffer loads eBPF programs and attaches them to links; run it with sudo")
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
