package config

import (
	"net"
	"net/url"
	"path"
	"strconv"
	"strings"

	"proffer/schema"
	"proffer/topo"
)

// longestEndpoint bounds load_from.
const longestEndpoint = 1023

// endpoint is the address of a program that reports its load.
func endpoint() schema.Kind[string] {
	const want = "an absolute path, unix:PATH, tcp:HOST:PORT, or a URL with http or https"
	return schema.Text(want, func(s string) (string, error) {
		if len(s) > longestEndpoint || strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r == 0x7f }) || !isEndpoint(s) {
			return "", schema.ErrNot
		}
		return s, nil
	}).Like("^(/.|unix:/.|tcp:.+:[0-9]+$|https?://.)").
		Eg(`"http://127.0.0.1:9100/metrics"`, `"unix:/run/haproxy/admin.sock"`, `"tcp:127.0.0.1:9000"`, "/run/apache2/apache2.pid")
}

func isEndpoint(s string) bool {
	scheme, rest, _ := strings.Cut(s, ":")
	switch scheme {
	case "unix":
		return isPath(rest) && len(rest) <= 107 // sockaddr_un (unix(7))
	case "tcp":
		host, port, err := net.SplitHostPort(rest)
		n, wrong := strconv.Atoi(port)
		return err == nil && wrong == nil && host != "" && 1 <= n && n <= 65535
	case "http", "https":
		u, err := url.Parse(s)
		return err == nil && u.Hostname() != "" && u.Fragment == ""
	default:
		return isPath(s)
	}
}

func isPath(s string) bool { return path.IsAbs(s) && path.Clean(s) == s && s != "/" }

// part names that part of a program which takes a service's requests.
func part() schema.Kind[string] {
	const want = "the part of the program that takes the service's requests, 1 to 255 characters without spaces at its ends"
	return schema.Text(want, func(s string) (string, error) {
		if s == "" || len(s) > 255 || strings.TrimSpace(s) != s || strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f }) {
			return "", schema.ErrNot
		}
		return s, nil
	}).Eg("/status", "web")
}

// checkSource finds the mistakes of the address and the part that a source is read from.
func checkSource(d *schema.Document, at string, o *topo.Offering) {
	l, row := o.Load(), o.Source.Row()
	switch {
	case !l.From():
	case o.From == "":
		d.Failf(at+".load_from", "is missing, but required with load: %s; want %s", l, row.FromEG)
	case !o.Source.Reads(o.From):
		d.Failf(at+".load_from", "%q is no address that load: %s is read from; want %s", o.From, l, row.FromEG)
	}
	switch {
	case !l.Of():
	case o.Of == "":
		d.Failf(at+".load_of", "is missing, but required with load: %s; want %s", l, row.Of)
	case !row.Takes(o.Of):
		d.Failf(at+".load_of", "%q is not %s", o.Of, row.Of)
	}
}
