package agent_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"proffer/proof/rig"
)

// TestServeGo is a server of Go for the tests below: this program, started by serveGo. Each
// request waits for another server's answer, if there is one.
func TestServeGo(t *testing.T) {
	address, next := os.Getenv("PROFFER_TEST_SERVES"), os.Getenv("PROFFER_TEST_NEXT")
	if address == "" {
		return
	}
	client := http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1000}}
	t.Fatal(http.ListenAndServe(address, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if next == "" {
			return
		}
		answer, err := client.Get("http://" + next)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		defer answer.Body.Close()
		io.Copy(w, answer.Body)
	})))
}

func serveGo(t *testing.T, next string) {
	t.Helper()
	t.Setenv("PROFFER_TEST_SERVES", at(workPort))
	t.Setenv("PROFFER_TEST_NEXT", next)
	serve(t, workPort, os.Args[0], "-test.run", "^TestServeGo$")
}

// TestWorkGoIdle: threads of Go's runtime that are parked are no work.
func TestWorkGoIdle(t *testing.T) {
	r := newWorkRig(t)
	serveGo(t, "")
	fds := clients(t, 200, 20000, request)
	answered(t, fds)
	for range 20 { // so that the runtime has threads
		for _, fd := range fds {
			if _, err := unix.Write(fd, []byte(request)); err != nil {
				t.Fatal(err)
			}
		}
		answered(t, fds)
	}
	if err := r.RecountWork(); err != nil { // a thread may have handed a request over
		t.Fatal(err)
	}
	settles(r, t, "200 idle connections", 0, 0)
}

// TestWorkGo: requests that wait for another server.
func TestWorkGo(t *testing.T) {
	r := newWorkRig(t)
	_, open := serveSlowly(t, 8001)
	serveGo(t, at(8001))
	fds := clients(t, 10, 22000, request)
	settles(r, t, "10 slow requests", 9, 11)
	open()
	answered(t, fds)
	if err := r.RecountWork(); err != nil {
		t.Fatal(err)
	}
	settles(r, t, "answered", 0, 0)
}

// certify writes a certificate and its key.
func certify(t *testing.T) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	of := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	public, err := x509.CreateCertificate(rand.Reader, of, of, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	write := func(name, kind string, b []byte) string {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: b}), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	return write("cert", "CERTIFICATE", public), write("key", "PRIVATE KEY", secret)
}

// http2Client is a connection of HTTP/2 over TLS 1.3.
func http2Client(t *testing.T, from uint16) *http.Client {
	t.Helper()
	fd, err := unix.Dup(rig.Dial(t, from, workPort)) // Dial closes its own
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "")
	defer f.Close()
	conn, err := net.FileConn(f) // with another descriptor
	if err != nil {
		t.Fatal(err)
	}
	secure := tls.Client(conn, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
	t.Cleanup(func() { secure.Close() })
	return &http.Client{Transport: &http.Transport{
		ForceAttemptHTTP2: true,
		DialTLSContext:    func(context.Context, string, string) (net.Conn, error) { return secure, secure.Handshake() },
	}}
}

func get(c *http.Client) error {
	answer, err := c.Get("https://a/")
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.ProtoMajor != 2 || answer.TLS.Version != tls.VersionTLS13 {
		return fmt.Errorf("%s over TLS %x, not HTTP/2 over TLS 1.3", answer.Proto, answer.TLS.Version)
	}
	_, err = io.ReadAll(answer.Body)
	return err
}

// TestWorkHTTP2: idle connections of HTTP/2 over TLS 1.3 are no work, and each of many slow
// requests on one of them is.
func TestWorkHTTP2(t *testing.T) {
	r := newWorkRig(t)
	cert, key := certify(t)
	_, open := serveSlowly(t, 8001)
	nginx(t, workPort, fmt.Sprintf(`server { listen %s ssl http2; ssl_protocols TLSv1.3; ssl_certificate %s; ssl_certificate_key %s;
location = / { return 200 "ok"; } location /slow { proxy_pass http://%s; } }`, at(workPort), cert, key, at(8001)))
	var all []*http.Client
	for i := range 100 {
		all = append(all, http2Client(t, uint16(20000+i)))
		if err := get(all[i]); err != nil {
			t.Fatal(err)
		}
	}
	settles(r, t, "100 idle connections", 0, 0)
	failed := make(chan error)
	for range 10 {
		go func() {
			answer, err := all[0].Get("https://a/slow")
			if err == nil {
				err = answer.Body.Close()
			}
			failed <- err
		}()
	}
	settles(r, t, "10 slow requests on one connection", 10, 10)
	open()
	for range 10 {
		if err := <-failed; err != nil {
			t.Error(err)
		}
	}
	settles(r, t, "answered", 0, 0)
}
