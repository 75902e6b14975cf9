// Command init is process 1 of a guest. It mounts the kernel's file systems,
// loads the modules beside it, and runs the programs that its line asks for. When it
// ends, for whatever reason, the kernel panics and QEMU ends with it.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"proffer/proof/guest/internal/call"
)

func main() {
	work := parent
	if os.Getpid() != 1 {
		work = child
	}
	if err := work(); err != nil {
		fmt.Fprintln(os.Stderr, "init:", err)
		os.Exit(1)
	}
}

// parent is process 1: it inherits every process after its parent has ended,
// and waits for its end, lest it stay as a zombie. It ends with the
// child that does all the work, which may wait for programs of its own in peace.
func parent() error {
	if err := prepare(); err != nil {
		return err
	}
	cmd := exec.Command("/init")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Start(); err != nil {
		return err
	}
	for {
		pid, err := unix.Wait4(-1, nil, 0, nil)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("wait: %w", err)
		}
		if pid == cmd.Process.Pid {
			return errors.New("the child has ended")
		}
	}
}

func child() error {
	port, err := openLine()
	if err != nil {
		return err
	}
	return serve(port)
}

func prepare() error {
	for _, m := range []struct{ kind, at string }{
		{"proc", "/proc"}, {"sysfs", "/sys"}, {"devtmpfs", "/dev"}, {"bpf", "/sys/fs/bpf"},
	} {
		if err := os.MkdirAll(m.at, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(m.kind, m.at, m.kind, 0, ""); err != nil {
			return fmt.Errorf("mount %s: %w", m.at, err)
		}
	}
	modules, err := filepath.Glob("/modules/*.ko") // sorted: each after those it needs
	if err != nil {
		return err
	}
	for _, m := range modules {
		if err := load(m); err != nil {
			return fmt.Errorf("load %s: %w", m, err)
		}
	}
	if err := os.Setenv("PATH", "/bin"); err != nil {
		return err
	}
	return exec.Command("busybox", "--install", "-s", "/bin").Run()
}

func load(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return unix.FinitModule(int(f.Fd()), "", 0)
}

// openLine waits for the only virtio-serial port, which its driver announces a
// little later.
func openLine() (*os.File, error) {
	const ports = "/dev/vport*"
	const patience = 10 * time.Second
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		found, err := filepath.Glob(ports)
		if err != nil {
			return nil, err
		}
		if len(found) > 0 {
			return os.OpenFile(found[0], os.O_RDWR, 0)
		}
	}
	return nil, fmt.Errorf("no %s after %v", ports, patience)
}

func serve(port io.ReadWriter) error {
	in, out := json.NewDecoder(port), json.NewEncoder(port)
	for {
		var r call.Request
		if err := in.Decode(&r); err != nil {
			return fmt.Errorf("read the line: %w", err)
		}
		if err := out.Encode(answer(r)); err != nil {
			return fmt.Errorf("write the line: %w", err)
		}
	}
}

func answer(r call.Request) call.Reply {
	var stdout, stderr strings.Builder
	cmd := exec.Command(r.Args[0], r.Args[1:]...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	reply := call.Reply{Code: cmd.ProcessState.ExitCode(), Stdout: stdout.String(), Stderr: stderr.String()}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		reply.Error = err.Error()
	}
	return reply
}
