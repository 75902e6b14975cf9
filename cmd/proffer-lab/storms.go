package main

import (
	"time"

	"github.com/spf13/cobra"

	"proffer/lab/storms"
)

var _ = registerTrial(stormTrial)

func stormTrial(*experimentFlags) trial {
	var e storms.Storm
	return trial{
		name:  "storm",
		short: "all troubles at once: daemons, links, containers, other programs, attacks",
		long: `Short requests, long flows and a service in a container go through a farm while,
all at once, daemons get SIGHUP, SIGTERM and SIGKILL and are started again, links
and gateways change their MAC, routes come and go in bursts of 400, tc programs
of another owner are attached before the agents' and removed (one kind keeps
packets from them), a container is replaced, and an attacker sends SYNs and
datagrams of clients that do not exist, stray ACKs, datagrams to a port without a
service, frames for another host, and SRv6 without a key. The LBs' tables of flows
have 4096 entries, which the datagrams fill in seconds.

--json prints one object: seconds, lbs, servers, requests, failed (requests with
a healthy server that got anything but an answer), excused (in a container's
hands when that ended), longest_ms (of any request, from when it was due), flows,
flows_lost, abuses, seed. abuses is an array of name, times (changes made, or
frames sent), counter (of the daemons; empty: the daemon's status, asked at each
change), counted.

Fails if a request with a healthy server failed, a long flow was lost, a request
took more than 1.5 s, a daemon did not notice a change, or an abuse was not
counted under its name.`,
		example: `  proffer-lab experiment storm --out out
  proffer-lab experiment storm --for 30s --every 2s --json`,
		flags: func(cmd *cobra.Command) {
			flags := cmd.Flags()
			flags.DurationVar(&e.For, "for", 10*time.Minute, "`TIME` in all")
			flags.DurationVar(&e.Every, "every", 3*time.Second, "`TIME` from one change of each lane to its next: daemons, links")
			flags.IntVar(&e.LBs, "lbs", 2, "load balancers, `N`")
			flags.Float64Var(&e.Rate, "rate", 200, "short requests a second, `N`")
			flags.IntVar(&e.Flows, "flows", 500, "long flows, `N`")
		},
		action: does(&e, &e.Servers, &e.Seed, &e.Programs),
	}
}

var _ = registerTrial(floodTrial)

func floodTrial(*experimentFlags) trial {
	var e storms.Flood
	return trial{
		name:  "flood",
		short: "flood with spoofed SYNs: the effect on established and new flows",
		long: `Opens flows, then floods their service with SYNs of clients that do not exist.
The flows exchange data before, during and after each flood, and new connections
are tried 50 times a second. A displaced flow lives on, as its server is asked for
it; so the counters of that must stand still while the flows speak. The flood is
sent by the machine that serves, so then as much CPU as it took is burnt instead,
and the tries are made again.

--json prints an array of rows, one a rate: rate (asked for; 0: as many as go),
sent_pps, offered (SYNs that came as far as the load balancer and were offered to
servers), cpu (share of all CPUs that were busy), established, lost (of them,
after the flood), silent_during (no answer within 10 s during it), recovered
(packets of theirs that met no entry at the load balancer or the server),
table_full (new flows that found no room in the load balancer's table), tried, ok
(new connections), p90_ms (of those, from when each was due to its answer),
tried_spin, ok_spin, p90_spin_ms.

Fails if an established flow is lost or recovered, if one in a hundred new flows,
spoofed or not, finds no room, and if one in a hundred new connections fails more,
or nine of ten take half a second longer, than with CPU burnt. Where the network
itself loses more than 2 % of the SYNs on their way, time does not decide and one
in twenty may fail.`,
		example: `  proffer-lab experiment flood
  proffer-lab experiment flood --rates 20000,0 --for 2s --json`,
		flags: func(cmd *cobra.Command) {
			flags := cmd.Flags()
			flags.IntSliceVar(&e.Rates, "rates", []int{50_000, 100_000, 200_000, 0}, "SYNs a second, `LIST` with commas; 0: as many as go")
			flags.DurationVar(&e.For, "for", 5*time.Second, "`TIME` of each flood")
			flags.IntVar(&e.Flows, "flows", 1000, "established flows, `N`")
		},
		action: does(&e, &e.Servers, &e.Seed, &e.Programs),
	}
}

var _ = registerTrial(forgeTrial)

func forgeTrial(*experimentFlags) trial {
	var e storms.Forge
	return trial{
		name:  "forge",
		short: "forge signals, RSTs and FINs: does anything change inside",
		long: `Sends forged frames from the client to every node, with the edge of the SR domain
open. Nine in ten are signals: all functions that carry a tag, as if from a
node of the domain, with a random tag or none; any function from outside the
domain; SRHs with wrong lengths and pointers; segments on packets for the VIP;
frames cut off. Half of them name a live flow. Then RSTs and FINs with random
sequence numbers, in the names of live and of invented clients.

Before and after the signals all flow tables are read from their pins and
hashed, without the times at which flows were last seen, and the TCP segments
that came to any node's kernel are counted.

--json prints one object: packets, signals, floods (RSTs and FINs), seen (signals
that our programs counted as dropped), changed_maps (nodes with tables that the
signals changed), delivered (segments of signals that came to a kernel),
accepted (connections), entries (gained or lost by all frames), flows, lost,
asking (requests in progress by the agents' counters, afterwards), recounted
(counts of them that a recount had to set right), counters
(the counters of the signals), servers, seed. --out gets the counters;
there is no figure.

Fails if a table changed, anything was delivered or accepted, or a flow was lost.`,
		example: `  proffer-lab experiment forge
  proffer-lab experiment forge --packets 10000000 --seed 7 --json`,
		flags: func(cmd *cobra.Command) {
			cmd.Flags().IntVar(&e.Packets, "packets", 1_000_000, "frames to forge, 100,000 a second, `N`")
		},
		action: does(&e, &e.Servers, &e.Seed, &e.Programs),
	}
}

var _ = registerTrial(lbKillTrial)

func lbKillTrial(*experimentFlags) trial {
	var e storms.LBKill
	return trial{
		name:  "lbkill",
		short: "kill load balancers under traffic: which requests and flows notice",
		long: `Kills a random load balancer at even intervals, while short connections, idle
flows and bulk streams (1 MB/s each) go through all of them by the router's
ECMP. In turns a host dies and a daemon alone. A host dies at once; the router goes on
sending to it for --detect and then withdraws its route, as BFD or BGP would. The host is
built again half an interval later, and is announced again: it has to find the flows
that the router sends it. A daemon alone dies by SIGKILL and is started again; its host
stays announced and its programs go on. At the end all idle flows exchange data, and
all streams end in good order, every byte checked.

--json prints one object: kills, host_kills, requests, failed (anything but an
answer), detect_ms, swallowed (frames to and from dead hosts until their routes were
withdrawn), longest_stall_ms (of any request, from when it was due), idle_flows,
idle_lost, bulk_flows, bulk_lost, bulk_bytes, carrying (load balancers that
steered packets since they came back), lbs, servers, seed.

Fails if a request failed, a flow was lost, a load balancer that came back got
nothing to do, no frame met a dead host, or a request took more than 1.5 s: a lost SYN is sent again after
one.`,
		example: `  proffer-lab experiment lbkill
  proffer-lab experiment lbkill --lbs 2 --every 2s --for 20s --json`,
		flags: func(cmd *cobra.Command) {
			flags := cmd.Flags()
			flags.DurationVar(&e.Every, "every", 5*time.Second, "`TIME` from one death to the next")
			flags.DurationVar(&e.For, "for", 2*time.Minute, "`TIME` in all")
			flags.DurationVar(&e.Detect, "detect", 500*time.Millisecond, "`TIME` from a host's death to the withdrawal of its route")
			flags.IntVar(&e.LBs, "lbs", 3, "load balancers, `N`")
			flags.Float64Var(&e.Rate, "rate", 200, "short connections a second, `N`")
			flags.IntVar(&e.Idle, "idle", 1000, "idle flows, `N`")
			flags.IntVar(&e.Bulk, "bulk", 20, "bulk streams, half of them uploads, `N`")
		},
		action: does(&e, &e.Servers, &e.Seed, &e.Programs),
	}
}

var _ = registerTrial(lossTrial)

func lossTrial(*experimentFlags) trial {
	var e storms.Loss
	return trial{
		name:  "loss",
		short: "lose frames on every link: is each connection served once",
		long: `Makes short connections, 200 a second, while every link between the router and
the other nodes loses frames in each direction: by hunt (acceptance dynamic), by
single, and by the router's own route to one server, as if Proffer were not
there. Each server keeps a book of the requests that it served.

--json prints an array of rows, one a method and loss: loss, method, requests,
ok, failed, resets (of those: a RST to the SYN or later), served_twice, unserved
(answered, and in no server's books), accepted_twice (connections with two sockets),
requested_twice (connections with request sockets on two servers after two SYNs at
most; a third SYN meets the candidates in another order), lost_frames.

Fails if a request was served twice, if a connection was accepted or requested
twice, or if a method has more resets than the
plain route. A connection that is not answered within a minute has failed; that
is the network's doing: hunting crosses more links.`,
		example: `  proffer-lab experiment loss
  proffer-lab experiment loss --loss 0.1 --requests 500 --json`,
		flags: func(cmd *cobra.Command) {
			flags := cmd.Flags()
			flags.Float64SliceVar(&e.Losses, "loss", []float64{0.01, 0.05}, "shares of frames to lose, `LIST` with commas")
			flags.IntVar(&e.Requests, "requests", 2000, "connections of each method at each loss, `N`")
		},
		action: does(&e, &e.Servers, &e.Seed, &e.Programs),
	}
}

var _ = registerTrial(resiliencyTrial)

func resiliencyTrial(*experimentFlags) trial {
	var e storms.Resiliency
	var methods []string
	return trial{
		name:  "resiliency",
		short: "replace servers and LBs together under long flows: which flows are lost (6LB Fig. 11d)",
		long: `Opens long flows through the first of several load balancers, then replaces
one server after the other by a fresh one. The removed host dies at once, and at
the same moment the router turns to the next LB, which has never seen the flows:
every second one is started just then, the others ran since the start and got
every reload (with hunt-no-history all are started just then, and none has a record
of earlier pools). Then all flows exchange data. 6LB Figure 11d does this once.

Methods: hunt asks the candidates of today's pool and of all earlier ones in the
configuration; hunt-no-history asks today's candidates only, as the paper does;
single asks no server and presumes the one that the flow's hash met in the oldest
pool in the configuration; stateless asks no server (consistent hashing).

Flows are offered with acceptance static at half a server's share of flows, by
the load measure sockets, so that about half of them end up with each candidate.

--json prints an array of rows, one a method: method, changes, flows, removed
(flows of removed servers, unavoidable), extra_resets (flows that died although
their server is there), silent (of those: no answer, and no RST), recovered (by
the LBs' counters, over all changes), first_takes (share of flows with their
first candidate), seed, servers, buckets, per_change: change, cold, live,
removed, extra_resets, silent, recovered.

Fails if hunt or single has any extra reset, if hunt-no-history or stateless has none (the
changes prove nothing then), or if the new LB of a hunting method recovers less than 90 % of
the live flows.`,
		example: `  proffer-lab experiment resiliency
  proffer-lab experiment resiliency --methods hunt --flows 5000 --changes 15 --json`,
		flags: func(cmd *cobra.Command) {
			flags := cmd.Flags()
			flags.StringSliceVar(&methods, "methods", []string{"hunt", "hunt-no-history", "single", "stateless"}, "methods to compare, `LIST` with commas")
			flags.IntVar(&e.Flows, "flows", 1000, "long flows, `N`")
			flags.IntVar(&e.Changes, "changes", 10, "replacements of a server, each with another LB, `N`")
			flags.IntVar(&e.Buckets, "buckets", 4096, "lists in the table of candidates, `M`")
		},
		ready: func() error {
			e.Methods = nil
			for _, m := range methods {
				e.Methods = append(e.Methods, storms.Method(m))
			}
			return nil
		},
		action: does(&e, &e.Servers, &e.Seed, &e.Programs),
	}
}
