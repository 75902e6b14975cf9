package guest

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// machine is a QEMU process.
type machine struct {
	cmd     *exec.Cmd
	console console
	done    chan struct{} // closed when it has ended
}

// console collects QEMU's output while other goroutines read it.
type console struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (c *console) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.text.Write(p)
}

func (c *console) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.text.String()
}

// firstExtra is the number of the first of exec.Cmd's ExtraFiles in the child.
const firstExtra = 3

// launch starts QEMU inside the place and returns our end of the guest's line.
// All it needs comes by open files, so nothing is left to remove.
func launch(place Place, qemu, name, kernel string, image []byte, tap *os.File) (*machine, net.Conn, error) {
	initramfs, err := memory("initramfs", image)
	if err != nil {
		return nil, nil, err
	}
	defer initramfs.Close()
	ours, theirs, err := wire()
	if err != nil {
		return nil, nil, err
	}
	defer theirs.Close()
	m := &machine{cmd: exec.Command(qemu, arguments(name, kernel)...), done: make(chan struct{})}
	m.cmd.ExtraFiles = []*os.File{initramfs, tap, theirs} // in the order of arguments
	m.cmd.Stdout, m.cmd.Stderr = &m.console, &m.console
	m.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: unix.SIGKILL}
	if err := m.start(place); err != nil {
		ours.Close()
		return nil, nil, fmt.Errorf("start QEMU: %w", err)
	}
	return m, ours, nil
}

func arguments(name, kernel string) []string {
	const initramfs, tap, line = firstExtra, firstExtra + 1, firstExtra + 2
	return []string{
		"-name", name, "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
		"-machine", "q35", "-accel", "tcg", "-cpu", "max", "-smp", "1", "-m", "512", // MiB
		"-kernel", kernel, "-initrd", fmt.Sprintf("/dev/fd/%d", initramfs),
		// panic=-1: reboot at once, which -no-reboot makes the end. An emulated timer
		// that a busy host makes late is no broken one.
		"-append", "console=ttyS0 quiet panic=-1 no_timer_check", "-serial", "stdio",
		"-netdev", fmt.Sprintf("tap,id=link,fd=%d", tap),
		"-device", "virtio-net-pci,netdev=link,romfile=", // no boot ROM, which another Debian package has
		"-chardev", fmt.Sprintf("socket,id=line,fd=%d", line),
		"-device", "virtio-serial-pci", "-device", "virtserialport,chardev=line",
	}
}

// start keeps a thread inside the place for as long as QEMU runs: the kernel
// sends a Pdeathsig when the thread that forked ends.
func (m *machine) start(place Place) error {
	result := make(chan error, 1)
	go func() {
		started := false
		err := place.Do(func() error {
			if err := m.cmd.Start(); err != nil {
				return err
			}
			started = true
			result <- nil
			m.cmd.Wait() // killed in the end, so its status means nothing
			return nil
		})
		if !started {
			result <- err
		}
		close(m.done)
	}()
	return <-result
}

// kill ends QEMU; a guest has nothing to save.
func (m *machine) kill() {
	m.cmd.Process.Kill() // an error means it has ended
	<-m.done
}

// memory returns a file that is nowhere but in memory.
func memory(name string, content []byte) (*os.File, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("make %s: %w", name, err)
	}
	f := os.NewFile(uintptr(fd), name)
	if _, err := f.Write(content); err != nil {
		return nil, errors.Join(fmt.Errorf("write %s: %w", name, err), f.Close())
	}
	return f, nil
}

// wire returns both ends of a connection, ours and one for a child.
func wire() (ours net.Conn, theirs *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("make the guest's line: %w", err)
	}
	theirs = os.NewFile(uintptr(fds[1]), "line")
	mine := os.NewFile(uintptr(fds[0]), "line")
	defer mine.Close() // FileConn has its own
	if ours, err = net.FileConn(mine); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("make the guest's line: %w", err), theirs.Close())
	}
	return ours, theirs, nil
}
