package kit

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// Debian makes a package of a program.
func Debian(t *testing.T, program, version, folder string) {
	t.Helper()
	cmd := exec.Command("../../dist/deb", program, version, folder)
	cmd.Env = append(os.Environ(), "SOURCE_DATE_EPOCH=1767225600")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("make a package: %v\n%s", err, out)
	}
}

// WantRestricted wants a daemon that runs as its unit says: with four capabilities, a filter of system calls,
// and a file system that it cannot write to.
func WantRestricted(t *testing.T, c *Container, role string) {
	t.Helper()
	status := c.Run(t, "sh", "-c", fmt.Sprintf("cat /proc/$(systemctl show --value -p MainPID proffer-%s)/status", role))
	const four = 1<<12 | 1<<24 | 1<<38 | 1<<39 // CAP_NET_ADMIN, _SYS_RESOURCE, _PERFMON, _BPF
	own, err := os.ReadFile("/proc/self/status")
	Must(t, err)
	var here uint64 // a machine that is a container itself may lack some
	_, bounding, _ := strings.Cut(string(own), "\nCapBnd:\t")
	_, err = fmt.Sscanf(bounding, "%x", &here)
	Must(t, err)
	for _, want := range []string{fmt.Sprintf("CapBnd:\t%016x", here&four), "NoNewPrivs:\t1", "Seccomp:\t2"} {
		if !strings.Contains(status, want) {
			t.Errorf("%s lacks %q:\n%s", role, want, status)
		}
	}
	mounts := c.Run(t, "sh", "-c", fmt.Sprintf("cat /proc/$(systemctl show --value -p MainPID proffer-%s)/mounts", role))
	if !regexp.MustCompile(`(?m)^\S+ / \S+ ro`).MatchString(mounts) || !regexp.MustCompile(`(?m)^\S+ /sys/fs/bpf/proffer bpf rw`).MatchString(mounts) {
		t.Errorf("%s:\n%s", role, mounts)
	}
}

// WantUpgrade upgrades the package: the running daemon is replaced, takes over, and the operator's files stay.
func WantUpgrade(t *testing.T, c *Container, role string) {
	t.Helper()
	pid := func() string { return c.Run(t, "systemctl", "show", "--value", "-p", "MainPID", "proffer-"+role) }
	c.Write(t, "/etc/proffer/farm.yaml", "# mine\n")
	was := pid()
	c.Run(t, "dpkg", "--no-triggers", "-i", "/root/share/proffer_0.2_amd64.deb")
	var s struct{ Adopted bool }
	text := c.Run(t, "proffer", "status", "--json", "--control", "/run/proffer/"+role+".sock")
	if err := json.Unmarshal([]byte(text), &s); err != nil || !s.Adopted || pid() == was {
		t.Errorf("%s: process %s, then %s, %v:\n%s", role, was, pid(), err, text)
	}
	if text := c.Run(t, "cat", "/etc/proffer/farm.yaml"); text != "# mine" {
		t.Errorf("the operator's file is now\n%s", text)
	}
	for _, role := range []string{"lb", "agent", "edge", "nf"} {
		if state, _ := c.Command("systemctl", "is-active", "proffer-"+role).Output(); strings.Contains(string(state), "failed") {
			t.Errorf("%s is %s", role, state)
		}
	}
}
