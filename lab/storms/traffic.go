package storms

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"proffer/lab/farmrun"
	"proffer/lab/testbed"
	"proffer/lab/traffic"
	"proffer/lab/traffic/responder"
)

// farmTraffic is all that crosses a farm under LBKill: short requests to the web,
// idle flows to the shell, streams to the bulk service; and their far sides.
type farmTraffic struct {
	bed      *testbed.Bed
	web      traffic.Client
	requests []traffic.Request
	idle     *traffic.Flows
	bulk     *bulk
	far      []interface{ Close() error }
}

// newTraffic starts the servers; nothing moves yet.
func newTraffic(bed *testbed.Bed, requests []traffic.Request) (*farmTraffic, error) {
	t := &farmTraffic{
		bed:      bed,
		web:      traffic.Client{To: netip.AddrPortFrom(bed.VIP, testbed.Port), Enter: bed.Client.Enter},
		requests: requests,
		bulk:     &bulk{},
	}
	web, err := farmrun.Serve(bed, responder.Machine{Cores: 2, Workers: 32})
	if err != nil {
		return nil, err
	}
	t.far = append(t.far, web)
	shells, err := farmrun.FarSidesOn(bed, echoPort, farmrun.NewEcho)
	if err != nil {
		return nil, errors.Join(err, t.close())
	}
	t.far = append(t.far, shells)
	stores, err := farmrun.FarSidesOn(bed, bulkPort, newBulk)
	if err != nil {
		return nil, errors.Join(err, t.close())
	}
	t.far = append(t.far, stores)
	return t, nil
}

// open opens the long flows: all idle ones speak once, the streams run from now
// on. Each kind has a client address of its own.
func (t *farmTraffic) open(ctx context.Context, idle, streams int) (err error) {
	t.idle, err = traffic.OpenFlows(ctx, traffic.Dial{
		To: netip.AddrPortFrom(t.bed.VIP, echoPort), From: farmrun.FromPorts(t.bed.ClientAddrs[0], idle),
		Rate: openRate, Enter: t.bed.Client.Enter,
	})
	if err != nil {
		return err
	}
	if err := allAlive(t.idle.Exchange(ctx, exchangeWithin)); err != nil {
		return errors.Join(err, ctx.Err())
	}
	return t.bulk.start(ctx, traffic.Dial{
		To: netip.AddrPortFrom(t.bed.VIP, bulkPort), From: farmrun.FromPorts(t.bed.ClientAddrs[1], streams),
		Enter: t.bed.Client.Enter,
	})
}

// allAlive returns an error that names a dead flow.
func allAlive(answers []traffic.Answer) error {
	for _, a := range answers {
		if a.Outcome != traffic.OK {
			return fmt.Errorf("flow from %s is %s before anything has happened: %s", a.From, a.Outcome, a.Cause)
		}
	}
	return nil
}

func (t *farmTraffic) close() error {
	if t.idle != nil {
		_ = t.idle.Close() // it never fails
	}
	t.bulk.Stop()
	var errs []error
	for _, far := range t.far {
		errs = append(errs, far.Close())
	}
	return errors.Join(errs...)
}

// bulk is streams in both directions, half of them each.
type bulk struct{ ways []*traffic.Transfers }

func (b *bulk) start(ctx context.Context, d traffic.Dial) error {
	all := d.From
	for _, way := range []struct {
		from   []netip.AddrPort
		upload bool
	}{{all[:len(all)/2], true}, {all[len(all)/2:], false}} {
		d.From = way.from
		t, err := traffic.Bulk{Dial: d, Upload: way.upload}.Start(ctx)
		if err != nil {
			return err
		}
		b.ways = append(b.ways, t)
	}
	return nil
}

// Stop ends the streams in good order and returns how each ended.
func (b *bulk) Stop() (all []traffic.Transfer) {
	for _, way := range b.ways {
		all = append(all, way.Stop()...)
	}
	return all
}

// pacedBulk is a bulk server that takes its time.
type pacedBulk struct{ *responder.BulkServer }

func newBulk(name string) farmrun.FarSide { return pacedBulk{responder.NewBulkServer(name)} }

func (b pacedBulk) Serve(l net.Listener) error { return b.BulkServer.Serve(paced{l}) }
