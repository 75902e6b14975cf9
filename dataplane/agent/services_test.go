package agent_test

import (
	"net/netip"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"proffer/dataplane/agent"
	"proffer/proof/rig"
	"proffer/topo"
	"proffer/wire"
)

// TestOffer: an agent goes over to other services while its flows go on: a new threshold, a new
// service, one less. A measure without loaded programs is refused, and changes nothing.
func TestOffer(t *testing.T) {
	gone, kept := rig.Offering(81), rig.Offering(rig.HuntPort)
	r := rig.NewAgent(t, rig.Hits{}, gone, kept)
	rig.Listen(t, rig.HuntPort, 128)
	fresh, changed := rig.Offering(82), rig.Offering(rig.HuntPort, func(o *topo.Offering) { o.Threshold = 0 })
	avail := func(port, client uint16) rig.SR {
		p := rig.Inward(port, wire.SYN)
		p.Src = netip.AddrPortFrom(rig.ClientAddr, client)
		return rig.To(p, wire.Generation(p.Seq), wire.ConnectAvail, wire.ConnectForce)
	}
	r.Send(t, avail(rig.HuntPort, 1).Frame()).Is(t, "below the threshold", rig.XDPPass, nil, "accept_avail")
	if _, err := r.Offer([]topo.Offering{rig.Offering(83, func(o *topo.Offering) { o.Measure = topo.Sockets })}); err == nil || !strings.Contains(err.Error(), "restart the agent") {
		t.Errorf("a measure without its programs: %v", err)
	}
	if _, err := r.Offer([]topo.Offering{changed, fresh}); err != nil {
		t.Fatal(err)
	}
	if l, err := r.Load(0); err != nil || l.Threshold != 0 {
		t.Errorf("load %+v, %v", l, err)
	}
	if l, err := r.Load(1); err != nil || l.Threshold != 4 {
		t.Errorf("load of the new service %+v, %v", l, err)
	}
	if _, err := r.Load(2); err == nil {
		t.Error("a service that is gone has a load")
	}
	if n := r.Offered(t); n != 3 {
		t.Errorf("%d entries for two services and their address", n)
	}
	second := avail(rig.HuntPort, 2)
	r.Send(t, second.Frame()).Is(t, "by the new threshold", rig.XDPTX, second.Onward(rig.HopMAC(2)), "pass_on_busy")
	r.Send(t, avail(81, 3).Frame()).Is(t, "a service that is gone", rig.XDPDrop, nil, "drop_not_our_service")
}

// TestFailedStart: an agent that is loaded beside the programs of an earlier one and ends
// before it is attached leaves these their services, flows and thresholds.
func TestFailedStart(t *testing.T) {
	rig.Enter(t)
	pin := t.TempDir()
	if err := unix.Mount("bpf", pin, "bpf", 0, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(pin, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	gone, kept := rig.Offering(81, rig.ByTable), rig.Offering(rig.HuntPort, rig.ByTable)
	cfg := rig.AgentConfig(64, gone, kept)
	cfg.Pin = pin + "/s1"
	first := rig.LoadAgent(t, rig.Hits{}, cfg, rig.InVirtualTime)
	if err := first.Attach(); err != nil {
		t.Fatal(err)
	}
	p := rig.Inward(81, wire.SYN)
	first.Accept(t, p)
	first.Acknowledge(t, p)
	first.Pins.Unlock() // as of a daemon that ended; its programs go on

	cfg.Services = []topo.Offering{rig.Offering(rig.HuntPort, rig.ByTable, func(o *topo.Offering) { o.Threshold = 9 })}
	successor, err := agent.NewWith(cfg, rig.InVirtualTime)
	if err != nil {
		t.Fatal(err)
	}
	if err := successor.Close(); err != nil {
		t.Fatal(err)
	}
	if n := first.Offered(t); n != 3 {
		t.Errorf("%d entries are left of two services and their address", n)
	}
	if _, known := first.Settled(t, p.Flow()); !known {
		t.Error("its flow is forgotten")
	}
	if l, err := first.Load(1); err != nil || l.Threshold != 4 {
		t.Errorf("its load is %+v, %v", l, err)
	}
	request := rig.Inward(81, wire.ACK|wire.PSH)
	request.Seq, request.Payload = p.Seq+1, []byte("GET")
	first.Send(t, rig.To(request, wire.Generation(p.Seq), wire.AckStickiness).Frame()).Is(t, "its flow", rig.XDPPass, nil, "steered")
}
