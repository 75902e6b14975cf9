package wire

import (
	"crypto/hmac"
	"crypto/sha256"
	"fmt"
	"net/netip"
	"testing"

	"proffer/topo"
)

// TestServerKey against the definition, and one value for good: other nodes'
// versions must derive the same (computed with openssl).
func TestServerKey(t *testing.T) {
	master := topo.Key{16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31}
	locator := netip.MustParsePrefix("5f00:0:2:1::/64")
	mac := hmac.New(sha256.New, master[:])
	fmt.Fprint(mac, "proffer server key\x5f\x00\x00\x00\x00\x02\x00\x01")
	want := topo.Key(mac.Sum(nil)[:16])
	got := ServerKey(master, locator)
	if got != want || fmt.Sprintf("%x", got) != "a388f79f4df6fbb31409f54643f1452f" {
		t.Errorf("got %x, want %x", got, want)
	}
	if other := ServerKey(master, netip.MustParsePrefix("5f00:0:2:2::/64")); other == got {
		t.Error("two servers have one key")
	}
	if other := ServerKey(topo.Key{48}, locator); other == got {
		t.Error("two masters make one key")
	}
}
