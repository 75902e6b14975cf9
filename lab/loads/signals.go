package loads

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"proffer/api"
	"proffer/lab/application"
	"proffer/lab/farmrun"
	"proffer/lab/testbed"
	"proffer/topo"
)

// signalReader reads all signals of a program's service: the default, `busy`, and the
// application's own word if it has one.
type signalReader struct {
	names []string // the default first
	ctx   context.Context
	farm  *farmrun.Farm
	udp   bool
	queue *acceptQueue
	word  word // nil: it has none
}

// word is an application's own.
type word interface {
	read() (float64, error)
	close()
}

func newSignalReader(ctx context.Context, farm *farmrun.Farm, p *application.Program, site *application.Site) (_ *signalReader, err error) {
	r := &signalReader{ctx: ctx, farm: farm, udp: p.UDP}
	if r.queue, err = newAcceptQueue(site.Server, site.At.Port()); err != nil {
		return nil, err
	}
	load, err := r.status()
	if err != nil {
		r.close()
		return nil, err
	}
	r.names = []string{load.Measure}
	if load.Measure != topo.Busy.String() {
		r.names = append(r.names, topo.Busy.String())
	}
	if p.Word == nil {
		return r, nil
	}
	o, err := p.Word(site)
	if err != nil {
		r.close()
		return nil, err
	}
	if r.word, err = wordOf(ctx, o); err != nil {
		r.close()
		return nil, err
	}
	r.names = append(r.names, o.Source.String())
	return r, nil
}

// status asks the agent for the load of the service.
func (r *signalReader) status() (*api.LoadStatus, error) {
	s, err := r.farm.Status(r.ctx, r.farm.Bed.Servers[0])
	if err != nil {
		return nil, err
	}
	i := 0
	if r.udp {
		i = 1
	}
	if i >= len(s.Services) || s.Services[i].Load == nil {
		return nil, fmt.Errorf("the agent has no load of service %d: %+v", i, s.Services)
	}
	return s.Services[i].Load, nil
}

// read reads each signal: by the equations of bpf/agent/load/.
func (r *signalReader) read() ([]float64, error) {
	load, err := r.status()
	if err != nil {
		return nil, err
	}
	queue := uint32(0)
	if !r.udp {
		if queue, err = r.queue.length(); err != nil {
			return nil, err
		}
	}
	var all []float64
	if w := load.Work; w != nil {
		all = append(all, float64(max(queue, w.Early)+w.Unread-w.Early+w.Run+max(w.Blocked, w.Out)))
	}
	all = append(all, float64(load.Asking+queue+load.Expected))
	if r.word == nil {
		return all, nil
	}
	own, err := r.word.read()
	return append(all, own), err
}

func (r *signalReader) close() {
	if r.word != nil {
		r.word.close()
	}
	r.queue.socket.Close()
}

// acceptQueue reads the length of a port's accept queue, as `ss -lt` does.
type acceptQueue struct {
	socket *nl.NetlinkSocket
	port   uint16
}

func newAcceptQueue(n *testbed.Node, port uint16) (*acceptQueue, error) {
	q := &acceptQueue{port: port}
	err := n.Do(func() (err error) {
		q.socket, err = nl.Subscribe(unix.NETLINK_INET_DIAG)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("ask %s for its listeners: %w", n.Name, err)
	}
	return q, nil
}

// inetDiagRequest is struct inet_diag_req_v2 of linux/inet_diag.h: all listeners of IPv6.
func inetDiagRequest() []byte {
	const listening = 10 // TCP_LISTEN
	b := make([]byte, 56)
	b[0], b[1] = unix.AF_INET6, unix.IPPROTO_TCP
	binary.NativeEndian.PutUint32(b[4:], 1<<listening)
	return b
}

// Of struct inet_diag_msg.
const (
	inetDiagPort  = 4  // offset of id.idiag_sport
	inetDiagQueue = 56 // offset of idiag_rqueue
)

func (q *acceptQueue) length() (uint32, error) {
	const sockDiagByFamily = 20
	request := nl.NewNetlinkRequest(sockDiagByFamily, unix.NLM_F_DUMP)
	request.AddRawData(inetDiagRequest())
	if err := q.socket.Send(request); err != nil {
		return 0, fmt.Errorf("ask for listeners: %w", err)
	}
	sum := uint32(0)
	for {
		messages, _, err := q.socket.Receive()
		if err != nil {
			return 0, fmt.Errorf("ask for listeners: %w", err)
		}
		for _, m := range messages {
			switch {
			case m.Header.Type == unix.NLMSG_DONE:
				return sum, nil
			case m.Header.Type == unix.NLMSG_ERROR:
				return 0, errors.New("ask for listeners: the kernel refuses")
			case len(m.Data) >= inetDiagQueue+4 && binary.BigEndian.Uint16(m.Data[inetDiagPort:]) == q.port:
				sum += binary.NativeEndian.Uint32(m.Data[inetDiagQueue:])
			}
		}
	}
}
