package traffic

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"
)

// script is a server of one connection: what it does with each line that comes.
type script []func(net.Conn, string)

func (s script) serve(conn net.Conn) {
	in := bufio.NewReader(conn)
	for _, step := range s {
		text, err := in.ReadString('\n')
		if err != nil {
			return
		}
		step(conn, text)
	}
}

func echoes(conn net.Conn, text string) { fmt.Fprint(conn, "s1 ", text) }
func says(text string) func(net.Conn, string) {
	return func(c net.Conn, _ string) { fmt.Fprint(c, text) }
}
func ignores(net.Conn, string)       {}
func resets(conn net.Conn, _ string) { resetNow(conn) }
func closes(conn net.Conn, _ string) { hangUp(conn) }

func TestHowFlowsStand(t *testing.T) {
	var kept string
	keeps := func(conn net.Conn, text string) { kept = text }
	half := func(conn net.Conn, text string) { fmt.Fprint(conn, "s1 ", text[:4]); kept = text[4:] }
	late := func(conn net.Conn, text string) { fmt.Fprint(conn, "s1 ", kept); echoes(conn, text) }
	rest := func(conn net.Conn, text string) { fmt.Fprint(conn, kept); echoes(conn, text) }
	for _, c := range []struct {
		name   string
		server script
		want   []Outcome
	}{
		{"alive", script{echoes, echoes}, []Outcome{OK, OK}},
		{"reset", script{echoes, resets}, []Outcome{OK, Reset, Reset}},
		{"closed", script{echoes, closes}, []Outcome{OK, Closed, Closed}},
		{"silent, then alive", script{ignores, echoes}, []Outcome{Silent, OK}},
		{"late", script{keeps, late, ignores}, []Outcome{Silent, OK, Silent}},
		{"cut in two", script{half, rest, ignores}, []Outcome{Silent, OK, Silent}},
		{"another's answer", script{says("s1 me 1\n")}, []Outcome{Failed, Failed}},
		{"no answer at all", script{says("hello\n")}, []Outcome{Failed, Failed}},
	} {
		t.Run(c.name, func(t *testing.T) {
			end := make(chan struct{})
			defer close(end)
			to := behave(t, func(conn net.Conn) {
				c.server.serve(conn)
				<-end
				hangUp(conn)
			})
			flows := openFlows(t, Dial{To: to, From: make([]netip.AddrPort, 1)})
			for round, want := range c.want {
				timeout := 10 * time.Second
				if want == Silent {
					timeout = 100 * ms
				}
				got := flows.Exchange(t.Context(), timeout)[0]
				if got.Outcome != want || (got.Cause == "") != (want == OK) || (got.Server == "s1") != (want == OK) {
					t.Errorf("round %d: got %+v, want %q", round, got, want)
				}
			}
		})
	}
}

// What ends an idle flow shows in the next exchange, as what it was: a FIN stays
// one although our line is answered by a RST.
func TestWhatEndedAnIdleFlow(t *testing.T) {
	for _, c := range []struct {
		name string
		end  func(net.Conn)
		want Outcome
	}{
		{"reset", resetNow, Reset},
		{"closed", hangUp, Closed},
		{"closed, then reset", func(conn net.Conn) {
			_ = conn.(*net.TCPConn).CloseWrite()
			resetNow(conn)
		}, Closed},
	} {
		t.Run(c.name, func(t *testing.T) {
			idle, ended := make(chan struct{}), make(chan struct{})
			to := behave(t, func(conn net.Conn) {
				<-idle
				c.end(conn)
				close(ended)
			})
			flows := openFlows(t, Dial{To: to, From: make([]netip.AddrPort, 1)})
			close(idle)
			<-ended
			assertOutcomes(t, flows.Exchange(t.Context(), 10*time.Second), map[Outcome]int{c.want: 1})
		})
	}
}

func TestCancelEndsAnExchange(t *testing.T) {
	flows := openFlows(t, Dial{To: behave(t, stay), From: make([]netip.AddrPort, 1)})
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(10*ms, cancel)
	assertOutcomes(t, flows.Exchange(ctx, time.Hour), map[Outcome]int{Silent: 1})
	assertOutcomes(t, flows.Exchange(ctx, time.Hour), map[Outcome]int{Silent: 1})
}
