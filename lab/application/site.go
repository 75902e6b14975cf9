package application

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"proffer/lab/testbed"
)

// Site is where a program runs, and its clients.
type Site struct {
	Client, Server *testbed.Node
	At             netip.AddrPort // the service
	Dir            string         // an empty folder of the program
	Lab            string         // path of the proffer-lab binary
	Page           string         // path of the socket at which the agent hands a load page over; empty: it does not
	Quota          *testbed.Quota // of the program's CPU time; nil: none
	Env            []string       // that a program has beside this process's

	processes []*testbed.Process
	ends      []io.Closer
}

// readyWithin bounds the start of a program.
const readyWithin = 30 * time.Second

// unhurried is how much less the scheduler prefers a server than this process, which is preferred:
// a client that had to wait for a CPU would count its answer too late.
const unhurried = 10

// run starts a program on the server.
func (s *Site) run(name string, args ...string) error { return s.runAt(unhurried, name, args...) }

// runAt starts one that the scheduler prefers so much less than this process.
func (s *Site) runAt(nice int, name string, args ...string) error {
	args = append([]string{"-n", strconv.Itoa(nice), name}, args...)
	cmd := exec.Command("nice", args...)
	if s.Quota != nil {
		cmd = s.Quota.Command("nice", args...)
	}
	cmd.Dir, cmd.Env = s.Dir, append(os.Environ(), s.Env...)
	p, err := s.Server.StartCommand(cmd)
	if err != nil {
		return err
	}
	s.processes = append(s.processes, p)
	return nil
}

// until returns when do succeeds, or a process has ended.
func (s *Site) until(ctx context.Context, do func() error) error {
	ctx, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	for {
		err := do()
		if err == nil {
			return nil
		}
		for _, p := range s.processes {
			select {
			case <-p.Done():
				return fmt.Errorf("%s ended: %s", p.Name, p.Log())
			default:
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("no answer: %w: %w", ctx.Err(), err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// Stop ends the program.
func (s *Site) Stop() error {
	var errs []error
	for _, p := range s.processes {
		errs = append(errs, p.Stop())
	}
	for _, c := range s.ends {
		errs = append(errs, c.Close())
	}
	return errors.Join(append(errs, s.free())...)
}

// free returns when no process listens at the service any more: a thousand of them take a while to
// end.
func (s *Site) free() error {
	for tries := 0; ; tries++ {
		l, err := s.Server.Listen("tcp", s.At.String())
		if err == nil {
			return l.Close()
		}
		if tries == 500 {
			return err
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// slowAt is where another server is, on the program's own host, that answers after a time.
const slowAt = "[::1]:9000"

// behind starts that server.
func (s *Site) behind() error {
	l, err := s.Server.Listen("tcp6", slowAt)
	if err != nil {
		return fmt.Errorf("listen for %s: %w", s.Server.Name, err)
	}
	slow := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		us, _ := strconv.Atoi(r.URL.Query().Get("wait")) // a client's own number
		time.Sleep(time.Duration(us) * time.Microsecond)
		fmt.Fprintln(w, "ok")
	})}
	s.ends = append(s.ends, slow)
	go slow.Serve(l) // ends with Close
	return nil
}

// relay has a Unix socket of the program's, where its own word is, answer at an address of this
// process's network namespace.
func (s *Site) relay(name string) (at string, err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("relay %s: %w", name, err)
	}
	s.ends = append(s.ends, l)
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return // closed
			}
			go join(conn, filepath.Join(s.Dir, name))
		}
	}()
	return l.Addr().String(), nil
}

// join copies both ways until both have ended.
func join(conn net.Conn, socket string) {
	defer conn.Close()
	to, err := net.Dial("unix", socket)
	if err != nil {
		return
	}
	defer to.Close()
	go func() {
		io.Copy(to, conn)
		to.Close()
	}()
	io.Copy(conn, to)
}

// certify writes a certificate and its key.
func (s *Site) certify() (cert, key string, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return "", "", fmt.Errorf("make a key: %w", err)
	}
	of := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(24 * time.Hour)}
	public, err := x509.CreateCertificate(rand.Reader, of, of, &private.PublicKey, private)
	if err != nil {
		return "", "", fmt.Errorf("make a certificate: %w", err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return "", "", fmt.Errorf("make a key: %w", err)
	}
	cert, err = s.write("cert.pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: public})))
	if err != nil {
		return "", "", err
	}
	key, err = s.write("key.pem", string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})))
	return cert, key, err
}

// dial connects to the service.
func (s *Site) dial(ctx context.Context) (net.Conn, error) {
	return s.Client.DialContext(ctx, "tcp", s.At.String())
}
