package responder

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

func newTestServer(t *testing.T, m Machine) *Server {
	t.Helper()
	clock, err := NewClock()
	if err != nil {
		t.Fatal(err)
	}
	server := NewServer("s1", m, clock)
	t.Cleanup(func() {
		_ = server.Close()
		_ = clock.Close()
	})
	return server
}

func ask(s *Server, method, target string, body io.Reader) *http.Response {
	answer := httptest.NewRecorder()
	r := httptest.NewRequest(method, target, body)
	r.Header.Set(HeaderID, "42")
	s.http.Handler.ServeHTTP(answer, r)
	return answer.Result()
}

func TestServerSignsItsAnswers(t *testing.T) {
	server := newTestServer(t, Machine{Cores: 1, Workers: 1})
	answer := ask(server, "GET", "/?service=1ms", nil)
	if got := answer.Header.Get(HeaderServer) + answer.Header.Get(HeaderID); got != "s142" {
		t.Errorf("server and id: got %q", got)
	}
	if got := server.Served(); len(got) != 1 || got[0] != "42" {
		t.Errorf("served %v, want 42", got)
	}
}

func TestServerRefusesWhatItCannotRead(t *testing.T) {
	server := newTestServer(t, Machine{Cores: 1, Workers: 1})
	for _, target := range []string{"/?service=20", "/?service=-1ms", "/?service=x", "/bytes/-1", "/bytes/x"} {
		if got := ask(server, "GET", target, nil).StatusCode; got != http.StatusBadRequest {
			t.Errorf("%s: status %d, want 400", target, got)
		}
	}
	if len(server.Served()) != 0 {
		t.Errorf("served %v, want none", server.Served())
	}
}

func TestServerSendsAndDigestsBytes(t *testing.T) {
	const n = 1_000_003
	server := newTestServer(t, Machine{Cores: 1, Workers: 1})
	want, _ := io.ReadAll(Bytes(n))
	got, _ := io.ReadAll(ask(server, "GET", fmt.Sprintf("/bytes/%d", n), nil).Body)
	if len(got) != n || !bytes.Equal(got, want) {
		t.Errorf("got %d bytes, want the %d of Bytes", len(got), n)
	}
	for _, method := range []string{"PUT", "POST"} {
		digest, _ := io.ReadAll(ask(server, method, "/bytes", bytes.NewReader(want)).Body)
		if expect := fmt.Sprintf("%x %d\n", sha256.Sum256(want), n); string(digest) != expect {
			t.Errorf("%s: got %q, want %q", method, digest, expect)
		}
	}
	if half := want[:n/2]; bytes.Contains(want[n/2:], half[:16]) {
		t.Error("Bytes repeat themselves: a misplaced segment would go unnoticed")
	}
}

// Requests sleep on the virtual cores together, and a closed server lets go of
// those that still do.
func TestServerCountsSleepersAndWakesThemAtClose(t *testing.T) {
	server := newTestServer(t, Machine{Cores: 2, Workers: 3, Discipline: FIFO})
	woken := make(chan bool)
	for range 5 {
		go func() { woken <- server.sleeper.sleep(time.Hour) }()
	}
	for server.Busy() < 5 {
		time.Sleep(ms)
	}
	if got := server.InService(); got != 2 {
		t.Errorf("%d in service, want one a core", got)
	}
	_ = server.Close()
	for range 5 {
		if <-woken {
			t.Error("a sleeper was woken as if its hour had passed")
		}
	}
}

// Many servers share one clock, and each sleeper wakes neither early nor never.
func TestClockServesManyServers(t *testing.T) {
	clock, err := NewClock()
	if err != nil {
		t.Fatal(err)
	}
	defer clock.Close()
	late := make(chan time.Duration)
	const servers, each = 20, 20
	for i := range servers {
		s := newSleeper(Machine{Cores: each, Workers: each}, clock)
		for j := range each {
			go func() {
				asked := time.Duration(1+i+3*j) * ms
				begun := time.Now()
				s.sleep(asked)
				late <- time.Since(begun) - asked
			}()
		}
	}
	worst := time.Duration(0)
	for range servers * each {
		l := <-late
		if l < -time.Microsecond { // the completion is rounded to a nanosecond
			t.Errorf("woken %v early", -l)
		}
		worst = max(worst, l)
	}
	t.Logf("latest of %d sleepers: %v", servers*each, worst)
}
