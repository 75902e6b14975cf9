package wire

import (
	"crypto/hmac"
	"crypto/sha256"
	"net/netip"

	"proffer/topo"
)

// ServerKey derives the key that the server of a locator signs with: the first
// 128 bits of HMAC-SHA-256 (RFC 2104) under the master, of a label and the
// locator's 64 bits.
func ServerKey(master topo.Key, locator netip.Prefix) topo.Key {
	mac := hmac.New(sha256.New, master[:])
	prefix := locator.Addr().As16()
	mac.Write([]byte("proffer server key"))
	mac.Write(prefix[:8])
	return topo.Key(mac.Sum(nil)[:16])
}
