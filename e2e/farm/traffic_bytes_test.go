package farm

import (
	"crypto/sha256"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"proffer/e2e/kit"
	"proffer/lab/testbed"
	"proffer/lab/traffic/responder"
)

// plainPort is where a server answers under its own address, past the LB.
const plainPort = 8080

// TestCurl: through the VIP come the same bytes as from a server directly.
func TestCurl(t *testing.T) {
	for _, policy := range []string{"hunt:static:4", "hunt:dynamic", "single"} {
		t.Run(policy, func(t *testing.T) {
			bed := kit.Up(t, testbed.Config{Servers: 3})
			direct := serveDirectly(t, bed)
			farm := kit.Start(t, bed, kit.Settings(t, policy))
			for _, path := range []string{"/bytes/0", "/bytes/1", "/bytes/1380", "/bytes/1000000", "/?service=1ms"} {
				want := kit.In(t, bed.Client, "curl", "-sS", "--fail", direct+path)
				for range 5 {
					got := kit.In(t, bed.Client, "curl", "-sS", "--fail", kit.URL+path)
					if got != want && !(strings.HasPrefix(path, "/?") && isServer(bed, got)) {
						t.Errorf("%s: %d bytes through the VIP are not the %d that s1 sends", path, len(got), len(want))
					}
				}
			}
			counted := "offer"
			if policy == "single" {
				counted = "deliver"
			}
			if n := kit.Counter(t, farm, counted, bed.LBs[0]); n < 25 {
				t.Errorf("the LB counts %d %s for 25 connections", n, counted)
			}
		})
	}
}

func isServer(bed *testbed.Bed, body string) bool {
	for _, n := range bed.Servers {
		if strings.TrimSpace(body) == n.Name {
			return true
		}
	}
	return false
}

// serveDirectly is serve, and s1's server answers at the returned URL, too.
func serveDirectly(t *testing.T, bed *testbed.Bed) string {
	t.Helper()
	servers := kit.Serve(t, bed)
	address := netip.AddrPortFrom(bed.Servers[0].Addr, plainPort)
	l, err := bed.Servers[0].Listen("tcp6", address.String())
	if err != nil {
		t.Fatal(err)
	}
	go servers.All[0].Serve(l) // ends with Close
	return "http://" + address.String()
}

// same is a script for wrk: it compares every answer's body with a file.
const same = `
local threads = {}
function setup(thread) table.insert(threads, thread) end
function init(args)
	local file = io.open(args[1], "rb")
	want, alike, other = file:read("*a"), 0, 0
	file:close()
end
function response(status, headers, body)
	if status == 200 and body == want then alike = alike + 1 else other = other + 1 end
end
function done(summary, latency, requests)
	local alike, other, errors = 0, 0, summary.errors
	for _, thread in ipairs(threads) do
		alike, other = alike + thread:get("alike"), other + thread:get("other")
	end
	print(string.format("alike %d other %d errors %d", alike, other,
		errors.connect + errors.read + errors.write + errors.status + errors.timeout))
end
`

// TestWrk: wrk on many kept connections gets from the VIP what a server sends
// directly, every time, and no error.
func TestWrk(t *testing.T) {
	for _, policy := range []string{"hunt:static:4", "hunt:dynamic", "single"} {
		t.Run(policy, func(t *testing.T) {
			bed := kit.Up(t, testbed.Config{Servers: 3})
			direct := serveDirectly(t, bed)
			farm := kit.Start(t, bed, kit.Settings(t, policy))
			dir := t.TempDir()
			body, script := filepath.Join(dir, "body"), filepath.Join(dir, "same.lua")
			kit.In(t, bed.Client, "curl", "-sS", "--fail", "-o", body, direct+"/bytes/5000")
			if err := os.WriteFile(script, []byte(same), 0o644); err != nil {
				t.Fatal(err)
			}
			const conns = 24
			report := kit.In(t, bed.Client, "wrk", "-t2", fmt.Sprintf("-c%d", conns), "-d2s", "--timeout", "60s", "-s", script, kit.URL+"/bytes/5000", "--", body)
			m := regexp.MustCompile(`alike (\d+) other 0 errors 0`).FindStringSubmatch(report)
			if m == nil || m[1] == "0" {
				t.Fatalf("wrk reports\n%s", report)
			}
			busy := 0
			for _, n := range bed.Servers {
				if kit.Served(t, farm, n) > 0 {
					busy++
				}
			}
			if busy < len(bed.Servers) { // 24 flows by hash: 1 server without any in 5,000 runs
				t.Errorf("%d of %d servers were reached", busy, len(bed.Servers))
			}
		})
	}
}

// TestHundredMegabytes: a long download and a long upload arrive whole.
func TestHundredMegabytes(t *testing.T) {
	const size = 100_000_000
	hash := sha256.New()
	file := filepath.Join(t.TempDir(), "upload")
	out, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.MultiWriter(hash, out), responder.Bytes(size)); err != nil {
		t.Fatal(err)
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("%x", hash.Sum(nil))
	for _, policy := range []string{"hunt:static:4", "single"} {
		t.Run(policy, func(t *testing.T) {
			bed := kit.Up(t, testbed.Config{Servers: 3})
			kit.Serve(t, bed)
			kit.Start(t, bed, kit.Settings(t, policy))
			got := kit.In(t, bed.Client, "curl", "-sS", "--fail", "-T", file, kit.URL+"/bytes")
			if got != fmt.Sprintf("%s %d\n", want, size) {
				t.Errorf("uploaded: %q, want %s %d", got, want, size)
			}
			hash := sha256.New()
			n, err := io.Copy(hash, strings.NewReader(kit.In(t, bed.Client, "curl", "-sS", "--fail", fmt.Sprintf("%s/bytes/%d", kit.URL, size))))
			if err != nil || n != size || fmt.Sprintf("%x", hash.Sum(nil)) != want {
				t.Errorf("downloaded: %x, %d bytes (%v), want %s, %d", hash.Sum(nil), n, err, want, size)
			}
		})
	}
}
