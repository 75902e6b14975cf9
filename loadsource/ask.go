package loadsource

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"

	"proffer/foreign"
)

// overHTTP asks by GET over a connection that stays open. It follows no redirection, expands nothing
// that is compressed, and goes by no proxy.
func overHTTP(address string) (ask func(context.Context) ([]byte, error), release func()) {
	one := new(http.Protocols)
	one.SetHTTP1(true)
	transport := &http.Transport{DisableCompression: true, MaxConnsPerHost: 1, MaxResponseHeaderBytes: 64 << 10, Protocols: one}
	client := &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	ask = func(ctx context.Context) ([]byte, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
		if err != nil {
			return nil, err
		}
		resp, err := client.Do(req)
		if err != nil {
			return nil, err
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return nil, fmt.Errorf("%s answers %s", req.URL.Redacted(), resp.Status)
		}
		return bounded(resp.Body)
	}
	return ask, transport.CloseIdleConnections
}

// dial connects to unix:PATH or tcp:HOST:PORT. The connection ends with ctx.
func dial(ctx context.Context, address string) (net.Conn, error) {
	network, at, _ := strings.Cut(address, ":")
	connect := func(ctx context.Context) (net.Conn, error) { return new(net.Dialer).DialContext(ctx, network, at) }
	if network == "unix" {
		connect = func(ctx context.Context) (net.Conn, error) { return foreign.Dial(ctx, at) }
	}
	conn, err := connect(ctx)
	if err != nil {
		return nil, err
	}
	if late, ok := ctx.Deadline(); ok {
		err = conn.SetDeadline(late)
	}
	if err != nil {
		conn.Close()
	}
	return conn, err
}

// bounded reads an answer to its end.
func bounded(r io.Reader) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(r, longestAnswer+1))
	if err == nil && len(b) > longestAnswer {
		err = errLong
	}
	return b, err
}
