package report

import (
	"bytes"
	"encoding/hex"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"time"

	"proffer/policy"
	"proffer/topo"
	"proffer/weights"
	"proffer/wire"
)

var (
	lbAt     = netip.MustParsePrefix("5f00:0:1:1::/64")
	serverAt = netip.MustParsePrefix("5f00:0:2:1::/64")
	web      = topo.VIP{Addr: netip.MustParseAddr("192.0.2.80"), Port: 80}
	dns      = topo.VIP{Addr: netip.MustParseAddr("2001:db8:f::1"), Port: 53, Protocol: topo.UDP}
	farm     = topo.Key{1, 2, 3}
	master   = topo.Key{4, 5, 6}
)

// nodes are an LB and an agent with the keys of one farm, the first of those that the ids name.
func nodes(ids ...uint8) (lb, agent topo.Node) {
	lb, agent = topo.Node{Locator: lbAt}, topo.Node{Locator: serverAt}
	for _, id := range ids {
		f, m := farm, master
		f[15], m[15] = id, id
		lb.Keys = append(lb.Keys, topo.SignalKey{ID: id, Farm: f, Server: m})
		agent.Keys = append(agent.Keys, topo.SignalKey{ID: id, Farm: f, Server: wire.ServerKey(m, serverAt)})
	}
	return lb, agent
}

// TestFormat holds a request and an answer to bytes that were written down by hand, and the tag to
// SipHash-2-4 of them behind both locators.
func TestFormat(t *testing.T) {
	lb, agent := nodes(9)
	head := func(kind, protocol, known, nonce, vip, port, busy, workers, cores string) []byte {
		b, err := hex.DecodeString(strings.ReplaceAll("50726f31"+kind+"09"+protocol+known+nonce+vip+port+"0000"+busy+workers+cores+"0000000000000000", " ", ""))
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	wantTag := func(label string, b []byte, key topo.Key, locators string) {
		t.Helper()
		way, _ := hex.DecodeString(locators)
		want := policy.SipHash(key, append(way, b[:56]...))
		for i := range 8 {
			if b[56+i] != byte(want>>(8*i)) {
				t.Fatalf("%s: tag % x, want %016x, the lowest byte first", label, b[56:], want)
			}
		}
	}
	ask := Ask(&lb, serverAt, web, 0x0102030405060708)
	if want := head("01", "06", "00", "0102030405060708", "00000000000000000000ffffc0000250", "0050", "00000000", "00000000", "00000000"); !bytes.Equal(ask[:56], want) {
		t.Errorf("request\n% x, want\n% x", ask[:56], want)
	}
	wantTag("request", ask, lb.Keys[0].Farm, "5f00000000010001"+"5f00000000020001")
	answer := Reply(&agent, lbAt, Message{VIP: dns, Nonce: 7, Known: true, Report: weights.Report{Busy: 3, Workers: 32, Cores: 1.5}})
	if want := head("02", "11", "01", "0000000000000007", "20010db8000f00000000000000000001", "0035", "00000003", "00000020", "000005dc"); !bytes.Equal(answer[:56], want) {
		t.Errorf("answer\n% x, want\n% x", answer[:56], want)
	}
	wantTag("answer", answer, agent.Keys[0].Server, "5f00000000020001"+"5f00000000010001")
}

// TestBelieved: a node believes a datagram for itself, of its domain, by a key that both have, from the
// sender's own address, unchanged in every bit, and of the kind that it waits for.
func TestBelieved(t *testing.T) {
	lb, agent := nodes(1, 2)
	from, back := wire.Own(lbAt), wire.Own(serverAt)
	ask := Ask(&lb, serverAt, web, 5)
	if m, at, ok := Asked(&agent, from, ask); !ok || at != lbAt || m.VIP != web || m.Nonce != 5 || m.KeyID != 1 {
		t.Errorf("request: %+v from %v, %v", m, at, ok)
	}
	answer := Reply(&agent, lbAt, Message{VIP: web, Nonce: 5, Known: true, Report: weights.Report{Busy: 4, Workers: 8, Cores: 2}})
	if m, at, ok := Answered(&lb, back, answer); !ok || at != serverAt || m.Report.Busy != 4 || m.Report.Workers != 8 || m.Report.Cores != 2 || !m.Known || m.Nonce != 5 {
		t.Errorf("answer: %+v from %v, %v", m, at, ok)
	}
	older, _ := nodes(2) // the keys rotate
	_, newer := nodes(1)
	plainLB, plainAgent := nodes()
	away := topo.Node{Locator: netip.MustParsePrefix("5f00:0:2:2::/64"), Keys: agent.Keys}
	domain := agent
	domain.Domain = []netip.Prefix{netip.MustParsePrefix("5f00:0:9::/48")}
	asked := func(label string, want bool, n topo.Node, from netip.Addr, b []byte) {
		t.Helper()
		if _, _, ok := Asked(&n, from, b); ok != want {
			t.Errorf("request %s: believed: %v", label, ok)
		}
	}
	asked("by an older key", true, agent, from, Ask(&older, serverAt, web, 5))
	asked("by a key that the agent has not", false, newer, from, Ask(&older, serverAt, web, 5))
	asked("without a tag", false, agent, from, Ask(&plainLB, serverAt, web, 5))
	asked("without a tag, to an agent without keys", true, plainAgent, from, Ask(&plainLB, serverAt, web, 5))
	asked("from another LB's address", false, agent, wire.Own(netip.MustParsePrefix("5f00:0:1:2::/64")), ask)
	asked("from another address of the LB", false, agent, from.Next(), ask)
	asked("to another server", false, away, from, ask)
	asked("from outside of the domain", false, domain, from, ask)
	asked("that is an answer", false, agent, back, answer)
	domain.Domain = append(domain.Domain, netip.MustParsePrefix("5f00::/16"))
	asked("from the domain", true, domain, from, ask)
	if _, _, ok := Answered(&lb, from, ask); ok {
		t.Error("a request is believed to be an answer")
	}
	other := agent
	other.Locator = away.Locator
	if _, _, ok := Answered(&lb, wire.Own(away.Locator), Reply(&other, lbAt, Message{VIP: web, Nonce: 5})); ok {
		t.Error("a server is believed by the key of another one")
	}
	for bit := range 8 * Size {
		for _, b := range [][]byte{ask, answer} {
			b := bytes.Clone(b)
			b[bit/8] ^= 1 << (bit % 8)
			_, _, ok := Asked(&agent, from, b)
			_, _, answered := Answered(&lb, back, b)
			if ok || answered {
				t.Errorf("believed with bit %d changed", bit)
			}
		}
	}
}

// slowParse judges a datagram field by field, and by nothing of Parse.
func slowParse(b []byte) bool {
	if len(b) != 64 || string(b[:4]) != "Pro1" || !strings.Contains("\x01\x02", string(b[4:5])) || !strings.Contains("\x06\x11", string(b[6:7])) {
		return false
	}
	report, none := b[36:48], make([]byte, 12)
	switch {
	case b[34] != 0 || b[35] != 0 || !bytes.Equal(b[48:56], none[:8]):
		return false // reserved
	case b[5] == 0 && !bytes.Equal(b[56:], none[:8]):
		return false // a tag of no key
	case b[7] == 0:
		return bytes.Equal(report, none)
	}
	number := func(b []byte) int { return int(b[0])<<24 | int(b[1])<<16 | int(b[2])<<8 | int(b[3]) }
	possible := number(report) <= 1<<24 && number(report[4:]) <= 65535 && number(report[8:]) <= 65_535_000
	return b[7] == 1 && b[4] == 2 && !bytes.Equal(report[4:8], none[:4]) && !bytes.Equal(report[8:], none[:4]) && possible
}

func checkParse(t *testing.T, b []byte) {
	t.Helper()
	m, err := Parse(b)
	if want := slowParse(b); (err == nil) != want {
		t.Fatalf("% x: %v, want a message: %v", b, err, want)
	}
	if err != nil {
		return
	}
	again := m.Encode(Way{lbAt, serverAt}, farm)
	if !bytes.Equal(again[:atTag], b[:atTag]) {
		t.Fatalf("% x is a message that is encoded as % x", b, again)
	}
}

// TestParseRandom: Parse takes exactly the datagrams that have one meaning, and reads all of them.
func TestParseRandom(t *testing.T) {
	const seed, rounds = 20, 200_000
	rng, taken := rand.New(rand.NewPCG(seed, 0)), 0
	for range rounds {
		m := Message{VIP: web, Nonce: rng.Uint64(), KeyID: uint8(rng.IntN(2)), Answer: rng.IntN(2) == 0}
		if m.Answer && rng.IntN(2) == 0 {
			m.Known, m.Report = true, weights.Report{Busy: float64(rng.Uint32() >> rng.IntN(16)), Workers: float64(rng.Uint32N(9) << rng.IntN(16)), Cores: float64(rng.Uint32N(4000)<<rng.IntN(16)) / 1000}
		}
		b := m.Encode(Way{lbAt, serverAt}, farm)
		for range rng.IntN(3) {
			b[rng.IntN(Size)] = byte(rng.Uint32N(3))
		}
		checkParse(t, b[:Size-rng.IntN(50)/49])
		if _, err := Parse(b); err == nil {
			taken++
		}
	}
	if taken < rounds/10 || taken > rounds*9/10 {
		t.Errorf("%d of %d were messages: the rest of the rules was not looked at", taken, rounds)
	}
}

func FuzzParse(f *testing.F) {
	lb, agent := nodes(1)
	f.Add(Ask(&lb, serverAt, web, 5))
	f.Add(Reply(&agent, lbAt, Message{VIP: dns, Known: true, Report: weights.Report{Busy: 4, Workers: 8, Cores: 2}}))
	f.Fuzz(func(t *testing.T, b []byte) { checkParse(t, b) })
}

// TestLimit: a burst has room, then so many a second; a clock that stands or goes back gives no more.
func TestLimit(t *testing.T) {
	var l Limit
	take := func(at time.Duration, n int) (taken int) {
		for range n {
			if l.Take(at) {
				taken++
			}
		}
		return taken
	}
	if n := take(time.Hour, 3*atOnce); n != atOnce {
		t.Errorf("%d at once, want %d", n, atOnce)
	}
	if n := take(time.Hour+10*time.Millisecond, atOnce); n != mostAnswers/100 {
		t.Errorf("%d after 10 ms, want %d", n, mostAnswers/100)
	}
	for range 2 { // and forth again
		if n := take(time.Minute, atOnce) + take(time.Hour, atOnce); n > atOnce {
			t.Errorf("%d as time goes back, and an hour on", n)
		}
	}
	if n := take(time.Minute, atOnce); n != 0 {
		t.Errorf("%d as time goes back", n)
	}
}
