package application

import (
	"bufio"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	_ "embed"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/sys/unix"

	"proffer/loadpage"
)

//go:embed source/session.sh
var sessionScript string

// sshdConf: all that sshd reads and writes is in the folder of the program. A session runs a command
// that takes requests, and counts them in a pipe. By SHLVL the user's shell is not the first, and
// bash does not read the user's files, which may take longer than the login.
const sshdConf = `ListenAddress [%[2]s]:%[3]d
HostKey %[1]s/host
AuthorizedKeysFile %[1]s/authorized
PidFile none
StrictModes no
UsePAM no
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
PrintLastLog no
PrintMotd no
UseDNS no
LoginGraceTime 120
MaxStartups 4096
SetEnv SHLVL=2
ForceCommand exec sh %[1]s/session.sh %[1]s/requests
`

// privilegeSeparated is the empty folder that sshd wants, which Debian makes at the start of a host.
const privilegeSeparated = "/run/sshd"

const children = "a session works in processes that sshd starts, and they read nothing from the connection"

// daemonSSH has a session for each connection. Each request is a line of a session's input.
func daemonSSH() *Program {
	return &Program{
		Name: "sshd", Needs: []Need{{"/usr/sbin/sshd", "openssh-server"}}, Dial: dialSSH, Word: handedPage,
		Exceptions: excepting(children, CPU, Wait, Mixed),
		Start: func(ctx context.Context, s *Site) error {
			if err := s.sshdFiles(); err != nil {
				return err
			}
			conf, err := s.write("sshd.conf", fmt.Sprintf(sshdConf, s.Dir, s.At.Addr(), s.At.Port()))
			if err != nil {
				return err
			}
			counts := servedArgs("sessions", s.Page, filepath.Join(s.Dir, "requests"))
			if err := s.runAt(unhurried/2, s.Lab, counts...); err != nil { // before the sessions that it counts
				return err
			}
			if err := s.run("/usr/sbin/sshd", "-D", "-e", "-f", conf); err != nil {
				return err
			}
			return s.answers(ctx, dialSSH)
		},
	}
}

// sshdFiles makes the keys of the host and of its clients, the script and the pipe.
func (s *Site) sshdFiles() error {
	for _, name := range []string{"host", "client"} {
		public, private, err := ed25519.GenerateKey(rand.Reader)
		if err != nil {
			return fmt.Errorf("make a key: %w", err)
		}
		block, err := ssh.MarshalPrivateKey(private, "")
		if err != nil {
			return fmt.Errorf("make a key: %w", err)
		}
		if err := os.WriteFile(filepath.Join(s.Dir, name), pem.EncodeToMemory(block), 0o600); err != nil {
			return fmt.Errorf("write a key: %w", err)
		}
		key, err := ssh.NewPublicKey(public)
		if err != nil {
			return fmt.Errorf("make a key: %w", err)
		}
		if _, err := s.write("authorized", string(ssh.MarshalAuthorizedKey(key))); err != nil { // the last is the client's
			return err
		}
	}
	if _, err := s.write("session.sh", sessionScript); err != nil {
		return err
	}
	if err := unix.Mkfifo(filepath.Join(s.Dir, "requests"), 0o600); err != nil {
		return fmt.Errorf("make a pipe: %w", err)
	}
	err := os.Mkdir(privilegeSeparated, 0o755)
	if errors.Is(err, os.ErrExist) {
		return nil
	}
	s.ends = append(s.ends, closer(func() error { return os.Remove(privilegeSeparated) }))
	return err
}

// closer is a function that ends something.
type closer func() error

func (c closer) Close() error { return c() }

// serveSessions counts the requests of all sessions: + and - in a pipe, a line each.
func serveSessions(args []string, busy *loadpage.Counter) error {
	pipe, err := os.OpenFile(args[0], os.O_RDWR, 0) // it has no end: there is always a writer
	if err != nil {
		return fmt.Errorf("count sessions: %w", err)
	}
	for lines := bufio.NewScanner(pipe); lines.Scan(); {
		if lines.Text() == "+" {
			busy.Add()
		} else {
			busy.Done()
		}
	}
	return errors.New("count sessions: the pipe has ended")
}

// session is a client's, logged in.
type session struct {
	*ssh.Client
	in io.Writer
	r  *bufio.Reader
}

func dialSSH(ctx context.Context, s *Site) (Conn, error) {
	key, err := s.clientKey()
	if err != nil {
		return nil, fmt.Errorf("SSH: %w", err)
	}
	conn, err := s.dial(ctx)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	as := &ssh.ClientConfig{User: "root", Auth: []ssh.AuthMethod{ssh.PublicKeys(key)}, HostKeyCallback: ssh.InsecureIgnoreHostKey()} // the host is our own
	secure, channels, requests, err := ssh.NewClientConn(conn, s.At.String(), as)
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("SSH: %w", err)
	}
	c := &session{Client: ssh.NewClient(secure, channels, requests)}
	if err := c.open(); err != nil {
		return nil, errors.Join(fmt.Errorf("SSH: %w", err), c.Close())
	}
	return c, nil
}

// clientKey reads the key of all clients.
func (s *Site) clientKey() (ssh.Signer, error) {
	text, err := os.ReadFile(filepath.Join(s.Dir, "client"))
	if err != nil {
		return nil, err
	}
	return ssh.ParsePrivateKey(text)
}

// open begins the session of a connection.
func (c *session) open() error {
	s, err := c.NewSession()
	if err != nil {
		return err
	}
	if c.in, err = s.StdinPipe(); err != nil {
		return err
	}
	out, err := s.StdoutPipe()
	if err != nil {
		return err
	}
	c.r = bufio.NewReader(out)
	return s.Shell()
}

// countTakes is about the CPU time of a count in a shell.
const countTakes = 750 * time.Nanosecond

func (c *session) Ask(ctx context.Context, r Request) error {
	stop := context.AfterFunc(ctx, func() { c.Close() })
	defer stop()
	line := fmt.Sprintf("cpu %d", r.CPU/countTakes)
	if r.Wait > 0 {
		line = fmt.Sprintf("wait %f", r.Wait.Seconds())
	}
	if _, err := io.WriteString(c.in, line+"\n"); err != nil {
		return fmt.Errorf("SSH: %w", err)
	}
	answer, err := c.r.ReadString('\n')
	if err == nil && strings.TrimSpace(answer) != "ok" {
		err = fmt.Errorf("%q", answer)
	}
	if err != nil {
		return fmt.Errorf("SSH: %w", err)
	}
	return nil
}
