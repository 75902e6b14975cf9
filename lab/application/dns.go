package application

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// unboundConf: names below wait.lab. are asked of the server behind.
const unboundConf = `server:
 directory: "%[1]s"
 chroot: ""
 username: ""
 pidfile: "%[1]s/pid"
 interface: %[2]s@%[3]d
 access-control: ::/0 allow
 do-daemonize: no
 use-syslog: no
 num-threads: 2
 do-not-query-localhost: no
 do-tcp: no
 module-config: "iterator"
 cache-max-ttl: 0
 local-zone: "here.lab." static
 local-data: "a.here.lab. IN A 192.0.2.1"
remote-control:
 control-enable: no
forward-zone:
 name: "wait.lab."
 forward-addr: ::1@9053
`

// unbound answers over UDP. A request has no CPU time to speak of; one that waits has its name
// asked of a slow server.
func unbound() *Program {
	return &Program{
		Name: "unbound-udp", Needs: []Need{{"unbound", "unbound"}}, Dial: dialDNS, UDP: true, Without: []Kind{CPU, Mixed},
		Start: func(ctx context.Context, s *Site) error {
			if err := s.behindDNS(); err != nil {
				return err
			}
			conf, err := s.write("unbound.conf", fmt.Sprintf(unboundConf, s.Dir, s.At.Addr(), s.At.Port()))
			if err != nil {
				return err
			}
			if err := s.run("unbound", "-d", "-c", conf); err != nil {
				return err
			}
			return s.answers(ctx, dialDNS)
		},
	}
}

// behindDNS answers each name after the µs of its first label.
func (s *Site) behindDNS() error {
	var conn net.PacketConn
	err := s.Server.Do(func() (err error) {
		conn, err = net.ListenPacket("udp6", "[::1]:9053")
		return err
	})
	if err != nil {
		return fmt.Errorf("listen for %s: %w", s.Server.Name, err)
	}
	s.ends = append(s.ends, conn)
	go func() {
		for {
			b := make([]byte, 1500)
			n, from, err := conn.ReadFrom(b)
			if err != nil {
				return // closed
			}
			go answerLate(conn, from, b[:n])
		}
	}()
	return nil
}

func answerLate(conn net.PacketConn, to net.Addr, question []byte) {
	var m dnsmessage.Message
	if m.Unpack(question) != nil || len(m.Questions) != 1 {
		return
	}
	q := m.Questions[0]
	us, _, _ := strings.Cut(q.Name.String(), "-")
	wait, _ := strconv.Atoi(us) // another name has none
	time.Sleep(time.Duration(wait) * time.Microsecond)
	m.Response, m.Authoritative, m.Additionals = true, true, nil
	m.Answers = []dnsmessage.Resource{{
		Header: dnsmessage.ResourceHeader{Name: q.Name, Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET},
		Body:   &dnsmessage.AResource{A: [4]byte{192, 0, 2, 2}},
	}}
	if answer, err := m.Pack(); err == nil {
		conn.WriteTo(answer, to)
	}
}

// resolver is a client of DNS over UDP.
type resolver struct{ net.Conn }

func dialDNS(ctx context.Context, s *Site) (Conn, error) {
	conn, err := s.Client.DialContext(ctx, "udp", s.At.String())
	if err != nil {
		return nil, err
	}
	return &resolver{conn}, nil
}

func (c *resolver) Ask(ctx context.Context, r Request) error {
	name := "a.here.lab."
	if r.Wait > 0 {
		name = fmt.Sprintf("%d-%d.wait.lab.", r.Wait.Microseconds(), rand.Uint64()) // no cache has it
	}
	id := uint16(rand.Uint32())
	m := dnsmessage.Message{
		Header:    dnsmessage.Header{ID: id, RecursionDesired: true},
		Questions: []dnsmessage.Question{{Name: dnsmessage.MustNewName(name), Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET}},
	}
	question, err := m.Pack()
	if err != nil {
		return fmt.Errorf("DNS: %w", err)
	}
	if _, err := c.Write(question); err != nil {
		return fmt.Errorf("DNS: %w", err)
	}
	return errors.Join(c.answer(id), ctx.Err())
}

func (c *resolver) answer(id uint16) error {
	if err := c.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		return fmt.Errorf("DNS: %w", err)
	}
	for {
		var b [1500]byte
		n, err := c.Read(b[:])
		if err != nil {
			return fmt.Errorf("DNS: %w", err)
		}
		var p dnsmessage.Parser
		h, err := p.Start(b[:n])
		switch {
		case err != nil:
			return fmt.Errorf("DNS: %w", err)
		case h.ID == id && h.RCode != dnsmessage.RCodeSuccess:
			return fmt.Errorf("DNS: %v", h.RCode)
		case h.ID == id:
			return nil
		}
	}
}
