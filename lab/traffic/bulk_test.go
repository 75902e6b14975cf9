package traffic

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"proffer/lab/traffic/responder"
)

func newBulkServer(t *testing.T, name string) (netip.AddrPort, *responder.BulkServer) {
	t.Helper()
	l, err := responder.Listen(netip.MustParseAddrPort("[::1]:0"), 64)
	if err != nil {
		t.Fatal(err)
	}
	s := responder.NewBulkServer(name)
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	t.Cleanup(func() {
		_ = s.Close()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return netip.MustParseAddrPort(l.Addr().String()), s
}

// start returns once every stream has moved a megabyte.
func start(t *testing.T, ctx context.Context, b Bulk) *Transfers {
	t.Helper()
	transfers, err := b.Start(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(ms) {
		least := int64(1 << 62)
		for _, n := range transfers.Bytes() {
			least = min(least, n)
		}
		if least > 1<<20 {
			return transfers
		}
		if time.Now().After(end) {
			t.Fatalf("streams are stuck: %v", transfers.Bytes())
		}
	}
}

func TestBulkMovesEveryByte(t *testing.T) {
	for _, upload := range []bool{true, false} {
		t.Run(fmt.Sprint("upload=", upload), func(t *testing.T) {
			to, _ := newBulkServer(t, "s1")
			dial := Dial{To: to, From: make([]netip.AddrPort, 4), Timeout: 20 * time.Second}
			transfers := start(t, t.Context(), Bulk{dial, upload})
			began := transfers.Bytes()
			total := int64(0)
			for i, tr := range transfers.Stop() {
				if tr.Outcome != OK || tr.Cause != "" || tr.Server != "s1" || tr.Bytes < began[i] || !tr.From.IsValid() {
					t.Errorf("stream %d: %+v, want all right and %d bytes or more", i, tr, began[i])
				}
				if tr.Bytes != transfers.Bytes()[i] {
					t.Errorf("stream %d: %d bytes right, %d moved", i, tr.Bytes, transfers.Bytes()[i])
				}
				total += tr.Bytes
			}
			t.Logf("%d MB", total>>20)
		})
	}
}

// resets are a closed server's: bytes are under way that no process will read.
func TestBulkSeesResets(t *testing.T) {
	to, server := newBulkServer(t, "s1")
	transfers := start(t, t.Context(), Bulk{Dial{To: to, From: make([]netip.AddrPort, 2)}, true})
	_ = server.Close()
	transfers.running.Wait() // they send on until they are broken
	for i, tr := range transfers.Stop() {
		if tr.Outcome != Reset || tr.Cause == "" || tr.Server != "s1" {
			t.Errorf("stream %d: %+v, want a reset", i, tr)
		}
	}
}

func TestBulkEndsWithItsContext(t *testing.T) {
	to, _ := newBulkServer(t, "s1")
	ctx, cancel := context.WithCancel(t.Context())
	transfers := start(t, ctx, Bulk{Dial{To: to, From: make([]netip.AddrPort, 2)}, false})
	cancel()
	transfers.running.Wait() // without Stop
	if tr := transfers.Stop()[0]; tr.Outcome != Failed || !strings.Contains(tr.Cause, "canceled") {
		t.Errorf("%+v, want that it was cancelled", tr)
	}
	if _, err := (Bulk{Dial{To: to, From: make([]netip.AddrPort, 1)}, false}).Run(ctx, time.Hour); err == nil {
		t.Error("a cancelled run has no error")
	}
}

func TestBulkRunsForItsTime(t *testing.T) {
	to, _ := newBulkServer(t, "s1")
	began := time.Now()
	ended, err := Bulk{Dial{To: to, From: make([]netip.AddrPort, 2)}, true}.Run(t.Context(), 50*ms)
	if err != nil || len(ended) != 2 || ended[1].Outcome != OK || time.Since(began) < 50*ms {
		t.Errorf("after %v: %+v, %v, want two streams of 50 ms", time.Since(began), ended, err)
	}
	deaf := Dial{To: netip.MustParseAddrPort("[::1]:1"), From: make([]netip.AddrPort, 1)}
	ended, err = Bulk{deaf, true}.Run(t.Context(), 0)
	if err != nil || ended[0].Outcome != Refused {
		t.Errorf("got %+v, %v, want a refusal", ended, err)
	}
}

// A server that errs: its bytes, or its count of received bytes, are wrong.
func TestBulkSeesWhatIsWrong(t *testing.T) {
	bytesOf := func(conn net.Conn, edit func([]byte) []byte) {
		stream := strings.TrimPrefix(readLine(conn), "get ")
		fmt.Fprintln(conn, "s1")
		buffer := make([]byte, 3*responder.Chunk)
		responder.NewPattern(stream).Fill(buffer)
		_, _ = conn.Write(edit(buffer))
	}
	verdict := func(text string) func(net.Conn) {
		return func(conn net.Conn) {
			readLine(conn)
			fmt.Fprintln(conn, "s1")
			_, _ = io.Copy(io.Discard, conn)
			fmt.Fprint(conn, text)
			hangUp(conn)
		}
	}
	for _, c := range []struct {
		name   string
		upload bool
		server func(net.Conn)
		want   Outcome
		cause  string
	}{
		{"a bit", false, func(conn net.Conn) {
			bytesOf(conn, func(b []byte) []byte { b[100_000] ^= 1; return b })
		}, Failed, "byte 100000 is wrong"},
		{"bytes lost", false, func(conn net.Conn) {
			bytesOf(conn, func(b []byte) []byte { return append(b[:70_000], b[70_001:]...) })
		}, Failed, "byte 7000"},
		{"ends too early", false, func(conn net.Conn) {
			bytesOf(conn, func(b []byte) []byte { return b })
			hangUp(conn)
		}, Closed, "EOF"},
		{"stuck", false, func(conn net.Conn) { bytesOf(conn, func(b []byte) []byte { return b }) }, Silent, "timeout"},
		{"reset after a FIN", true, func(conn net.Conn) {
			readLine(conn)
			fmt.Fprintln(conn, "s1")
			_ = conn.(*net.TCPConn).CloseWrite()
			time.Sleep(10 * ms)
			resetNow(conn)
		}, Reset, "broken pipe"},
		{"too few arrived", true, verdict("7 ok\n"), Failed, "7 of"},
		{"wrong ones arrived", true, verdict("7 byte 7 is wrong\n"), Failed, "byte 7 is wrong"},
		{"no verdict", true, verdict(""), Closed, "EOF"},
		{"a strange verdict", true, verdict("fine\n"), Failed, "fine"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dial := Dial{To: behave(t, c.server), From: make([]netip.AddrPort, 1), Timeout: 20 * time.Second}
			if c.want == Silent {
				dial.Timeout = 200 * ms
			}
			transfers, err := Bulk{dial, c.upload}.Start(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if !c.upload || c.want == Reset {
				transfers.running.Wait() // it ends of itself
			}
			got := transfers.Stop()[0]
			if got.Outcome != c.want || !strings.Contains(got.Cause, c.cause) {
				t.Errorf("got %+v, want %q with %q", got, c.want, c.cause)
			}
		})
	}
}

func readLine(conn net.Conn) string {
	var text []byte
	for one := make([]byte, 1); ; text = append(text, one[0]) {
		if _, err := conn.Read(one); err != nil || one[0] == '\n' {
			return string(text)
		}
	}
}

// The server's verdict on an upload names the first wrong byte, and it reads on.
func TestBulkServerJudgesWhatItGets(t *testing.T) {
	to, _ := newBulkServer(t, "s1")
	for _, c := range []struct {
		wrong int
		want  string
	}{{-1, "s1\n200000 ok\n"}, {0, "s1\n0 byte 0 is wrong\n"}, {199_999, " byte 199999 is wrong\n"}} {
		conn, err := net.Dial("tcp", to.String())
		if err != nil {
			t.Fatal(err)
		}
		bytes := make([]byte, 200_000)
		responder.NewPattern("x").Fill(bytes)
		if c.wrong >= 0 {
			bytes[c.wrong] ^= 0x80
		}
		fmt.Fprintf(conn, "put x\n%s", bytes)
		_ = conn.(*net.TCPConn).CloseWrite()
		got, err := io.ReadAll(conn)
		if err != nil || !strings.HasSuffix(string(got), c.want) {
			t.Errorf("byte %d wrong: got %q, %v, want %q", c.wrong, got, err, c.want)
		}
		_ = conn.Close()
	}
}
