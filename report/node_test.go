package report

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"proffer/policy"
	"proffer/topo"
	"proffer/weights"
)

// there is the way of requests between an edge LB and a node, back that of answers.
var (
	there = Link{topo.Key{7, 8, 9}, netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")}
	back  = Link{there.Key, there.To, there.From}
)

// fullAnswer has all that an answer may have.
func fullAnswer() NodeMessage {
	cost := weights.Fixed(700)
	cost[13] = 1e9
	return NodeMessage{Server: 200, Service: 300, Nonce: 7, Answer: true, Cores: 3, NoChain: true, Cost: &cost, At: 1 << 40,
		Busy: []time.Duration{0, 5 * time.Microsecond, (1<<32 - 1) * time.Microsecond}}
}

// TestNodeFormat holds a request and an answer to bytes that were written down by hand, and the tag to
// SipHash-2-4 of them behind both addresses.
func TestNodeFormat(t *testing.T) {
	ask := NodeMessage{Server: 200, Service: 300, Nonce: 0x0102030405060708}
	answer := fullAnswer()
	const addresses = "00000000000000000000ffffc0000201" + "00000000000000000000ffffc0000202"
	for label, c := range map[string]struct {
		message NodeMessage
		way     Link
		hex     string
		between string
	}{
		"request": {ask, there, "50724531 01 c8 012c 0102030405060708" + strings.Repeat("00", 328), addresses},
		"answer": {answer, back, "50724531 02 c8 012c 0000000000000007 07 03 000000000000 0000010000000000" +
			"00000000 00000005 ffffffff" + strings.Repeat("00000000", 61) + strings.Repeat("000002bc", 13) + "3b9aca00",
			addresses[32:] + addresses[:32]},
	} {
		want, err := hex.DecodeString(strings.ReplaceAll(c.hex, " ", ""))
		if err != nil {
			t.Fatal(err)
		}
		got := c.message.Encode(c.way)
		if len(got) != 352 || !bytes.Equal(got[:344], want) {
			t.Errorf("%s\n% x, want\n% x", label, got[:344], want)
		}
		pair, _ := hex.DecodeString(c.between)
		if tag := policy.SipHash(c.way.Key, append(pair, got[:344]...)); tag != binary.LittleEndian.Uint64(got[344:]) {
			t.Errorf("%s: tag % x, want %016x, the lowest byte first", label, got[344:], tag)
		}
		if again, err := ParseNode(got, c.way); err != nil || !reflect.DeepEqual(again, c.message) {
			t.Errorf("%s is read as %+v, %v", label, again, err)
		}
	}
}

// TestNodeBelieved: neither end believes a datagram of another key, from or to another address, or
// changed in a bit.
func TestNodeBelieved(t *testing.T) {
	m := fullAnswer()
	b := m.Encode(back)
	for label, way := range map[string]Link{
		"with another key":   {topo.Key{7, 8}, back.From, back.To},
		"from another node":  {back.Key, back.From.Next(), back.To},
		"to another LB":      {back.Key, back.From, back.To.Prev()},
		"that was sent back": there,
	} {
		if _, err := ParseNode(b, way); err == nil {
			t.Errorf("a datagram %s is believed", label)
		}
	}
	for bit := range 8 * NodeSize {
		changed := bytes.Clone(b)
		changed[bit/8] ^= 1 << (bit % 8)
		if _, err := ParseNode(changed, back); err == nil {
			t.Errorf("believed with bit %d changed", bit)
		}
	}
}

// signed gives bytes the tag that they would have.
func signed(b []byte, l Link) []byte {
	binary.LittleEndian.PutUint64(b[nodeAtTag:], nodeTag(b, l))
	return b
}

// TestParseNodeRandom: of the datagrams that the far end itself signed, those are taken that have one
// meaning.
func TestParseNodeRandom(t *testing.T) {
	const seed, rounds = 21, 50_000
	rng, taken := rand.New(rand.NewPCG(seed, 0)), 0
	for range rounds {
		m := fullAnswer()
		if rng.IntN(2) == 0 {
			m.Busy, m.At = nil, 0
		}
		if rng.IntN(2) == 0 {
			m.Cost = nil
		}
		m.NoChain = rng.IntN(2) == 0
		m.Answer = rng.IntN(3) > 0
		b := m.Encode(back)
		if rng.IntN(2) == 0 {
			b[[]int{0, 4, 5, 6, 15, 16, 17, 18, 23, 24, 40, 44, 287, 288, 343}[rng.IntN(15)]] ^= 1 << rng.IntN(8)
		}
		got, err := ParseNode(signed(b, back), back)
		if want := slowNode(b); (err == nil) != want {
			t.Fatalf("% x: %v, want a message: %v (seed %d)", b, err, want, seed)
		}
		if err == nil {
			taken++
			if again := got.Encode(back); !bytes.Equal(again, b) {
				t.Fatalf("% x is a message that is encoded as % x", b, again)
			}
		}
	}
	if taken < rounds/10 || taken > rounds*9/10 {
		t.Errorf("%d of %d were messages: the rest of the rules was not looked at", taken, rounds)
	}
}

// slowNode judges a datagram field by field, and by nothing of ParseNode.
func slowNode(b []byte) bool {
	zero := func(from, to int) bool { return bytes.Equal(b[from:to], make([]byte, to-from)) }
	if string(b[:4]) != "PrE1" || !zero(18, 24) || b[16] > 7 {
		return false
	}
	cost, busy := b[16]&1 != 0, b[16]&2 != 0
	switch {
	case b[4] == 1:
		return zero(16, 344)
	case b[4] != 2 || b[17] == 0 || b[17] > 64:
		return false
	case !cost && !zero(288, 344):
		return false
	case !busy:
		return zero(24, 288)
	}
	return b[24] < 1<<7 && zero(32+4*int(b[17]), 288)
}

func FuzzParseNode(f *testing.F) {
	m := fullAnswer()
	f.Add(m.Encode(back))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) != NodeSize {
			if _, err := ParseNode(b, back); err == nil {
				t.Fatalf("% x is a message", b)
			}
			return
		}
		if _, err := ParseNode(signed(bytes.Clone(b), back), back); (err == nil) != slowNode(b) {
			t.Fatalf("% x: %v", b, err)
		}
	})
}
