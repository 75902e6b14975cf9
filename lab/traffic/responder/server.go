package responder

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/net/netutil"
)

// The headers that identify a request and its server.
const (
	HeaderServer = "X-Proffer-Server"
	HeaderID     = "X-Proffer-Id"
)

// Server answers HTTP/1.1 like a prefork server of Workers processes on Cores
// cores would, and uses next to no real CPU:
//
//	GET  /?service=20ms   sleeps that long on the virtual cores, then answers
//	GET  /bytes/N         N deterministic bytes, those of Bytes
//	PUT  /bytes (or POST) answers the body's SHA-256 in hex and its length
//
// service is a Go duration; none is 0. Every answer names the server and echoes
// the request's id.
type Server struct {
	Name    string
	workers int
	sleeper *sleeper
	http    http.Server
	once    sync.Once

	mu       sync.Mutex
	served   []string
	accepted map[netip.AddrPort]int
}

// NewServer returns a server that Serve makes answer.
func NewServer(name string, m Machine, clock *Clock) *Server {
	s := &Server{Name: name, workers: m.Workers, sleeper: newSleeper(m, clock)}
	routes := http.NewServeMux()
	routes.HandleFunc("GET /{$}", s.serve)
	routes.HandleFunc("GET /bytes/{n}", sendBytes)
	routes.HandleFunc("PUT /bytes", digestBytes)
	routes.HandleFunc("POST /bytes", digestBytes)
	s.http.Handler = s.signed(routes)
	s.accepted = map[netip.AddrPort]int{}
	s.http.ConnState = s.accept
	return s
}

// Serve takes connections from l, at most Workers at a time; the others wait in
// the kernel's accept queue, where the agent sees them. It returns nil after
// Close. Several listeners have Workers connections each and share the virtual
// cores, which in turn run at most Workers requests.
func (s *Server) Serve(l net.Listener) error {
	err := s.http.Serve(netutil.LimitListener(l, s.workers))
	if !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve %s on %s: %w", s.Name, l.Addr(), err)
	}
	return nil
}

// Close closes listeners and connections; sleeping requests are not answered.
func (s *Server) Close() error {
	s.once.Do(s.sleeper.close)
	return s.http.Close()
}

// Busy is the number of requests on the virtual cores or waiting for one.
func (s *Server) Busy() int {
	inHand, _ := s.sleeper.counts()
	return inHand
}

// SetSpeed changes the speed of the virtual cores from now on: other work on the server.
func (s *Server) SetSpeed(speed float64) { s.sleeper.setSpeed(speed) }

// InService is the number of requests that make progress.
func (s *Server) InService() int {
	_, inService := s.sleeper.counts()
	return inService
}

// Served lists the ids of the requests answered so far, in that order, an id as
// often as it was answered. Requests without an id are not listed.
func (s *Server) Served() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.served)
}

// Accepted counts the connections of each client so far.
func (s *Server) Accepted() map[netip.AddrPort]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.accepted)
}

func (s *Server) accept(conn net.Conn, state http.ConnState) {
	from, ok := conn.RemoteAddr().(*net.TCPAddr)
	if state != http.StateNew || !ok {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.accepted[from.AddrPort()]++
}

func (s *Server) signed(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(HeaderServer, s.Name)
		if id := r.Header.Get(HeaderID); id != "" {
			w.Header().Set(HeaderID, id)
		}
		next.ServeHTTP(w, r)
	})
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	demand, err := serviceOf(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if !s.sleeper.sleep(demand) {
		panic(http.ErrAbortHandler) // closing: the connection ends without an answer
	}
	s.log(r.Header.Get(HeaderID))
	w.Header().Set("Content-Type", "text/plain")
	fmt.Fprintln(w, s.Name)
}

func (s *Server) log(id string) {
	if id == "" {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.served = append(s.served, id)
}

func serviceOf(r *http.Request) (time.Duration, error) {
	text := r.URL.Query().Get("service")
	if text == "" {
		return 0, nil
	}
	service, err := time.ParseDuration(text)
	if err != nil || service < 0 {
		return 0, fmt.Errorf("service=%q is not a duration such as 20ms", text)
	}
	return service, nil
}

// Bytes are the n bytes that GET /bytes/n answers. They look random, so that a
// segment lost, doubled or misplaced on the way cannot go unnoticed.
func Bytes(n int64) io.Reader {
	return io.LimitReader(rand.NewChaCha8([32]byte{}), n)
}

func sendBytes(w http.ResponseWriter, r *http.Request) {
	n, err := strconv.ParseInt(r.PathValue("n"), 10, 64)
	if err != nil || n < 0 {
		http.Error(w, fmt.Sprintf("/bytes/%s: not a number of bytes", r.PathValue("n")), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Length", strconv.FormatInt(n, 10))
	// An error means that the client has left: no peer to report to.
	_, _ = io.Copy(w, Bytes(n))
}

func digestBytes(w http.ResponseWriter, r *http.Request) {
	hash := sha256.New()
	n, err := io.Copy(hash, r.Body)
	if err != nil {
		http.Error(w, fmt.Sprintf("read body: %v after %d bytes", err, n), http.StatusBadRequest)
		return
	}
	fmt.Fprintf(w, "%x %d\n", hash.Sum(nil), n)
}
