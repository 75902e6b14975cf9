package edge

import (
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"proffer/e2e/kit"
)

// TestEdgeNarrowLinks: behind NAT, a download finishes where the LB's link to the clients is narrower than
// the rest of the way, and an upload where that to the world is.
func TestEdgeNarrowLinks(t *testing.T) {
	b := newEdge(t)
	const bytes = 100_000
	listener, err := b.World.Listen("tcp", netip.AddrPortFrom(edgeWorld, 80).String())
	kit.Must(t, err)
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			w.Write(make([]byte, bytes))
			return
		}
		n, _ := io.Copy(io.Discard, r.Body)
		fmt.Fprint(w, n)
	})}
	go server.Serve(listener)
	t.Cleanup(func() { server.Close() })
	file := filepath.Join(t.TempDir(), "upload")
	kit.Must(t, os.WriteFile(file, make([]byte, bytes), 0o600))
	curl := []string{"curl", "-sS", "--max-time", "20", "--interface", edgeClient[kit.EdgeNAT].String(), "-o", "/dev/null", "-w", "%{size_upload} up, %{size_download} down", "http://" + edgeWorld.String() + "/"}
	transfer := func(narrow, want string, more ...string) {
		t.Helper()
		kit.Inside(t, b.Balancer, "ip", "link", "set", narrow, "mtu", "1300")
		defer kit.Inside(t, b.Balancer, "ip", "link", "set", narrow, "mtu", "1500")
		if got := kit.Inside(t, b.Client, append(curl, more...)...); got != want {
			t.Errorf("%s is narrow: %s, want %s", narrow, got, want)
		}
	}
	transfer("clients", fmt.Sprintf("0 up, %d down", bytes))
	transfer("world", fmt.Sprintf("%d up, 6 down", bytes), "--data-binary", "@"+file)
	all, err := b.LB.Counters()
	kit.Must(t, err)
	for _, c := range all {
		if c.Name == "too_big" && c.Value < 2 {
			t.Errorf("%d packets were answered as too big, want one of each at least", c.Value)
		}
	}
}
