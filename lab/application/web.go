package application

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
)

// web is a client of HTTP.
type web struct {
	http.Client
	url  string
	path func(Request) string
}

// dialWeb is a Dial of a program that speaks HTTP: HTTP/1.1 in clear, or HTTP/2 over TLS 1.3.
func dialWeb(secure bool, path func(Request) string) func(context.Context, *Site) (Conn, error) {
	return func(_ context.Context, s *Site) (Conn, error) {
		t := &http.Transport{
			DialContext:        func(ctx context.Context, _, _ string) (net.Conn, error) { return s.dial(ctx) },
			DisableCompression: true,
			MaxConnsPerHost:    1,
		}
		scheme := "http"
		if secure {
			scheme, t.ForceAttemptHTTP2 = "https", true
			t.TLSClientConfig = &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS13} // the certificate is our own
		}
		return &web{http.Client{Transport: t}, scheme + "://" + s.At.String(), path}, nil
	}
}

func (w *web) Ask(ctx context.Context, r Request) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, w.url+w.path(r), nil)
	if err != nil {
		return err
	}
	request.Header.Set("Accept-Encoding", "gzip")
	answer, err := w.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("GET %s: %s", request.URL, answer.Status)
	}
	_, err = io.Copy(io.Discard, answer.Body)
	return err
}

func (w *web) Close() error {
	w.CloseIdleConnections()
	return nil
}

// asked is the path of a request at a program of ours, in µs.
func asked(r Request) string {
	return fmt.Sprintf("/work?cpu=%d&wait=%d", r.CPU.Microseconds(), r.Wait.Microseconds())
}

// answersWeb returns once the program does.
func (s *Site) answersWeb(ctx context.Context, secure bool) error {
	return s.answers(ctx, dialWeb(secure, func(Request) string { return "/index.html" }))
}

// answers returns once the program has answered a request that asks nothing of it.
func (s *Site) answers(ctx context.Context, dial func(context.Context, *Site) (Conn, error)) error {
	return s.until(ctx, func() error {
		conn, err := dial(ctx, s)
		if err != nil {
			return err
		}
		defer conn.Close()
		return conn.Ask(ctx, Request{})
	})
}
