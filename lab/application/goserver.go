package application

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"proffer/loadpage"
)

// serveGo serves HTTP/2 over TLS, as the program of goSecure: at an address, with a certificate and
// its key.
func serveGo(args []string, busy *loadpage.Counter) error {
	burn := burner()
	return http.ListenAndServeTLS(args[0], args[1], args[2], http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		busy.Add()
		defer busy.Done()
		cpu, _ := strconv.Atoi(r.URL.Query().Get("cpu")) // a client's own numbers
		wait, _ := strconv.Atoi(r.URL.Query().Get("wait"))
		burn(time.Duration(cpu) * time.Microsecond)
		if wait > 0 {
			if err := askBehind(r.Context(), wait); err != nil {
				http.Error(w, err.Error(), http.StatusBadGateway)
				return
			}
		}
		fmt.Fprintln(w, "ok")
	}))
}

// askBehind waits for the server behind, on a connection of its own: one of many that stay open.
func askBehind(ctx context.Context, us int) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://%s/?wait=%d", slowAt, us), nil)
	if err != nil {
		return err
	}
	answer, err := behindClient.Do(request)
	if err != nil {
		return err
	}
	return answer.Body.Close()
}

var behindClient = http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1000}}

// burner returns a function that takes so much CPU time: by count, as a goroutine has no clock of
// its own.
func burner() func(time.Duration) {
	block := make([]byte, 4096)
	each := time.Hour
	for range 50 {
		began := time.Now()
		for range 10 {
			sha256.Sum256(block)
		}
		each = min(each, time.Since(began)/10)
	}
	each = max(each, 1)
	return func(d time.Duration) {
		for range d / each {
			sha256.Sum256(block)
		}
	}
}

func goSecure() *Program {
	dial := dialWeb(true, asked)
	return &Program{
		Name: "go-h2", Dial: dial, Share: 4, Start: startGo("h2", dial), Word: handedPage,
		Exceptions: excepting(goroutines, CPU, Mixed), Cure: "go-h2" + threads,
	}
}

const (
	goroutines = "goroutines that compute keep those waiting that read, and the program does not know of requests unread"
	threads    = "-threads"
)

// inThreads is a program in Go that computes, with a thread for each request: by GOMAXPROCS alone.
func inThreads(p *Program) *Program {
	start := p.Start
	p.Name += threads
	p.Without, p.Exceptions, p.Cure = []Kind{Wait}, nil, ""
	p.Start = func(ctx context.Context, s *Site) error {
		s.Env = append(s.Env, "GOMAXPROCS=32")
		return start(ctx, s)
	}
	return p
}

// startGo starts a server that is in the binary of proffer-lab.
func startGo(kind string, dial func(context.Context, *Site) (Conn, error)) func(context.Context, *Site) error {
	return func(ctx context.Context, s *Site) error {
		cert, key, err := s.certify()
		if err != nil {
			return err
		}
		if err := s.behind(); err != nil {
			return err
		}
		if err := s.runServed(kind, s.Page, s.At.String(), cert, key); err != nil {
			return err
		}
		return s.answers(ctx, dial)
	}
}
