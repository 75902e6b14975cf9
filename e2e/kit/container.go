package kit

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"proffer/lab/testbed"
)

// boot makes this machine's file system a container's, whose changes are in memory, and runs systemd there: its
// root, PIDs, mounts, cgroups, BPF file system and packages are its own, and its network is a node's.
const boot = `set -e
echo $$ >"$2/cgroup.procs"
exec unshare -m -p -C -i -u --fork --kill-child bash -c '
set -e
mount --make-rprivate /
mount -t tmpfs none "$1"
mkdir "$1"/up "$1"/work "$1"/root
mount -t overlay overlay -o "lowerdir=/,upperdir=$1/up,workdir=$1/work" "$1/root"
cd "$1/root"
mount -t proc proc proc
mount --bind proc/sys proc/sys
mount -o remount,ro,bind proc/sys
mount -t sysfs sysfs sys
mount -o remount,ro,bind sys
mount -t cgroup2 cgroup2 sys/fs/cgroup
mount -t bpf bpf sys/fs/bpf
for dir in run tmp dev; do mount -t tmpfs tmpfs $dir; done
for name in null zero full random urandom tty; do touch dev/$name; mount --bind /dev/$name dev/$name; done
mkdir dev/pts root/share
mount -t devpts devpts dev/pts -o newinstance,ptmxmode=0666
ln -s pts/ptmx dev/ptmx
ln -s /proc/self/fd dev/fd
mount --bind "$3" root/share
pivot_root . mnt
cd /
umount -l /mnt
export container=proffer
exec /lib/systemd/systemd --unit=basic.target --log-target=journal
' _ "$1" "$2" "$3"`

// Container is a node with an init system and packages of its own.
type Container struct{ pid int } // of its systemd

// Contain boots a node's container, which ends with the test. Share is a folder that is /root/share there.
func Contain(t *testing.T, n *testbed.Node, share string) *Container {
	t.Helper()
	dir, c := t.TempDir(), new(Container)
	group := filepath.Join(unifiedGroups(t), fmt.Sprintf("proffer-test-%d-%s", os.Getpid(), n.Name))
	Must(t, os.Mkdir(group, 0o755))
	t.Cleanup(func() {
		Eventually(t, "the container's groups are gone", func() bool { return emptyGroup(group) })
	})
	var log bytes.Buffer
	cmd := exec.Command("nsenter", "--net="+n.Path(), "bash", "-c", boot, "boot", dir, group, share)
	cmd.Stdout, cmd.Stderr = &log, &log
	Must(t, testbed.StartChild(cmd, unix.SIGKILL))
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() {
		if c.pid > 0 {
			unix.Kill(c.pid, unix.SIGKILL) // with it ends all that runs there
		}
		cmd.Process.Kill()
		<-ended
		if t.Failed() {
			t.Logf("%s:\n%s", n.Name, &log)
		}
	})
	Eventually(t, "systemd runs on "+n.Name, func() bool {
		if len(ended) > 0 {
			t.Fatalf("the container of %s ended: %s", n.Name, &log)
		}
		children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", cmd.Process.Pid))
		if err != nil {
			return false
		}
		c.pid, err = strconv.Atoi(strings.TrimSpace(string(children)))
		if err != nil {
			return false
		}
		out, _ := c.Command("systemctl", "is-system-running").Output()
		return strings.TrimSpace(string(out)) == "running" || strings.TrimSpace(string(out)) == "degraded"
	})
	return c
}

// unifiedGroups is where the second version of control groups is mounted.
func unifiedGroups(t *testing.T) string {
	t.Helper()
	mounts, err := os.ReadFile("/proc/mounts")
	Must(t, err)
	for line := range strings.Lines(string(mounts)) {
		if f := strings.Fields(line); len(f) > 2 && f[2] == "cgroup2" {
			return f[1]
		}
	}
	t.Fatal("no cgroup2 is mounted")
	return ""
}

// emptyGroup removes a group and those below it, and reports whether it is gone.
func emptyGroup(group string) bool {
	below, _ := os.ReadDir(group)
	for _, entry := range below {
		if entry.IsDir() {
			emptyGroup(filepath.Join(group, entry.Name()))
		}
	}
	err := os.Remove(group)
	return err == nil || os.IsNotExist(err)
}

// Command is one to run in the container.
func (c *Container) Command(args ...string) *exec.Cmd {
	return exec.Command("nsenter", append([]string{"-t", strconv.Itoa(c.pid), "-a"}, args...)...)
}

// Run runs a command in the container, and returns its output.
func (c *Container) Run(t *testing.T, args ...string) string {
	t.Helper()
	out, err := c.Command(args...).CombinedOutput()
	if err != nil {
		journal, _ := c.Command("sh", "-c", "systemctl status 'proffer-*'; journalctl -n 40 --no-pager").Output()
		t.Fatalf("%s: %v\n%s\n%s", strings.Join(args, " "), err, out, journal)
	}
	return string(bytes.TrimSpace(out))
}

// Fails runs a command that must fail, and returns its output.
func (c *Container) Fails(t *testing.T, args ...string) string {
	t.Helper()
	out, err := c.Command(args...).CombinedOutput()
	if err == nil {
		t.Fatalf("%s did not fail:\n%s", strings.Join(args, " "), out)
	}
	return string(out)
}

// Write makes a file of the container.
func (c *Container) Write(t *testing.T, path, text string) {
	t.Helper()
	cmd := c.Command("sh", "-c", `umask 077; cat >"$1"`, "_", path)
	cmd.Stdin = strings.NewReader(text)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("write %s: %v\n%s", path, err, out)
	}
}
