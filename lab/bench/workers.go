package bench

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"

	"golang.org/x/sys/unix"

	"proffer/topo"
)

// workStranger is a process of no service, which writes all that it reads: each way is a switch of
// the CPU to the other process.
type workStranger struct {
	cmd      *exec.Cmd
	to, from int
}

func newWorkStranger() (*workStranger, error) {
	var in, out [2]int
	if err := errors.Join(unix.Pipe2(in[:], unix.O_CLOEXEC), unix.Pipe2(out[:], unix.O_CLOEXEC)); err != nil {
		return nil, fmt.Errorf("make pipes: %w", err)
	}
	s := &workStranger{to: in[1], from: out[0], cmd: exec.Command("cat")}
	stdin, stdout := os.NewFile(uintptr(in[0]), "in"), os.NewFile(uintptr(out[1]), "out")
	defer stdin.Close()
	defer stdout.Close()
	s.cmd.Stdin, s.cmd.Stdout = stdin, stdout
	s.cmd.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGKILL}
	if err := s.cmd.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("start cat: %w", err), unix.Close(s.to), unix.Close(s.from))
	}
	return s, nil
}

// do makes n switches.
func (s *workStranger) do(n int) error {
	b := []byte{'x'}
	for range n / 2 {
		if err := exchange(s.to, s.from, b, b); err != nil {
			return err
		}
	}
	return nil
}

// check: the programs are attached.
func (s *workStranger) check(w *workBench) error { return w.reads(workServers[0], 0) }

func (s *workStranger) Close() error {
	errs := []error{unix.Close(s.to), unix.Close(s.from)}
	s.cmd.Wait() // its input ended
	return errors.Join(errs...)
}

// exchange writes and waits for an answer.
func exchange(to, from int, b, answer []byte) error {
	if _, err := unix.Write(to, b); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	for {
		n, err := unix.Read(from, answer)
		if err == unix.EINTR {
			continue
		}
		if err == nil && n == 0 {
			err = errors.New("nothing comes")
		}
		if err != nil {
			return fmt.Errorf("read: %w", err)
		}
		return nil
	}
}

// workServers are the kinds of servers: a thread a connection, or one for all.
var workServers = []string{"threads", "events"}

const workServe = `
import select, socket, sys, threading
l = socket.create_server((sys.argv[2], int(sys.argv[3])), family=socket.AF_INET6)
print("ready", flush=True)
def serve(c):
    while c.recv(4096):
        c.send(b"ok")
if sys.argv[1] == "threads":
    while True:
        threading.Thread(target=serve, args=(l.accept()[0],), daemon=True).start()
all, e = {l.fileno(): l}, select.epoll()
e.register(l, select.EPOLLIN)
while True:
    for fd, _ in e.poll():
        if fd == l.fileno():
            c = l.accept()[0]
            all[c.fileno()] = c
            e.register(c, select.EPOLLIN)
        elif all[fd].recv(4096):
            all[fd].send(b"ok")
`

// workServer is a server of another process, and connections to it.
type workServer struct {
	kind  string
	cmd   *exec.Cmd
	conns []int
}

func newWorkServer(kind string, vip topo.VIP) (_ *workServer, err error) {
	s := &workServer{kind: kind, cmd: exec.Command("python3", "-c", workServe, kind, vip.Addr.String(), fmt.Sprint(vip.Port))}
	s.cmd.Stderr = os.Stderr
	s.cmd.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGKILL}
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := s.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start python3: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		return nil, fmt.Errorf("the server of python3 wrote %q: %w", line, err)
	}
	for range workConnections {
		fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return nil, err
		}
		s.conns = append(s.conns, fd)
		if err := unix.Connect(fd, &unix.SockaddrInet6{Addr: vip.Addr.As16(), Port: int(vip.Port)}); err != nil {
			return nil, fmt.Errorf("connect to the server of python3: %w", err)
		}
	}
	return s, nil
}

var workRequest = []byte("GET / HTTP/1.1\r\nHost: a\r\n\r\n")

// do has n requests answered, in turn, each of the next connection.
func (s *workServer) do(n int) error {
	var answer [16]byte
	for i := range n {
		fd := s.conns[i%len(s.conns)]
		if err := exchange(fd, fd, workRequest, answer[:]); err != nil {
			return err
		}
	}
	return nil
}

// check: a request to the stopped server is work.
func (s *workServer) check(w *workBench) error {
	pid := s.cmd.Process.Pid
	if err := unix.Kill(pid, unix.SIGSTOP); err != nil {
		return err
	}
	var status unix.WaitStatus
	if _, err := unix.Wait4(pid, &status, unix.WUNTRACED, nil); err != nil || !status.Stopped() {
		return fmt.Errorf("stop the server: %v, %w", status, err)
	}
	_, err := unix.Write(s.conns[0], workRequest)
	err = errors.Join(err, w.reads(s.kind, 1), unix.Kill(pid, unix.SIGCONT))
	_, answer := unix.Read(s.conns[0], make([]byte, 16))
	return errors.Join(err, answer)
}

func (s *workServer) Close() error {
	var errs []error
	for _, fd := range s.conns {
		errs = append(errs, unix.Close(fd))
	}
	errs = append(errs, s.cmd.Process.Kill())
	s.cmd.Wait()
	return errors.Join(errs...)
}
