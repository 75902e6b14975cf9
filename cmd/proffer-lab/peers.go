package main

import (
	"time"

	"github.com/spf13/cobra"

	"proffer/lab/peers"
)

var _ = registerTrial(peersTrial)

func peersTrial(*experimentFlags) trial {
	var e peers.Experiment
	return trial{
		name:  "peers",
		short: "measure speed and CPU time beside HAProxy, nginx and plain routing",
		long: `Measures the alternatives in the balancer's place of the same farm, one after the
other and in rounds: the kernel's forwarding, all to one server (route) and to all
servers by a hash of addresses and ports (ecmp); Proffer's LB and agents
(hunt:static:4, and single); HAProxy in TCP mode (leastconn, one thread); nginx's
stream module (least_conn, one worker). The clients are wrk, curl and our own, the
servers nginx. Needs the Debian packages haproxy, nginx-light, libnginx-mod-stream,
wrk and curl.

--json prints an array of rows, one a way: way; connections_per_s (one request
each) and requests_per_s (on connections that stay open), 32 at a time;
gbit_per_s (download, 4 streams) and upload_gbit_per_s (one stream); p50_us and
p99_us of a connection with one request at 500 a second, from when it was due to
its answer, clients and servers on CPUs of their own; p50_over_route and
p50_over_ecmp, how much more the p50 is than that of route and of ecmp in the same
round, in per cent (the median of all rounds); late_p99_us, how late the client
sent them; and CPU time a connection, a request, and a GB (10⁹ bytes) of each
direction, counted in four ways, which are 0 for route, and the first for ecmp:

  cpu_us_per_connection, cpu_us_per_request, cpu_s_per_gb, cpu_s_per_upload_gb:
      the balancer's own: user and system time of its process (as /proc/PID/stat
      has them) and the run time of its eBPF programs (BPF_ENABLE_STATS)
  with_softirq_us_per_connection, with_softirq_us_per_request,
  with_softirq_s_per_gb, with_softirq_s_per_upload_gb:
      and the machine's softirq time (/proc/stat) over that of route, without the
      agents' programs
  with_agents_us_per_connection, with_agents_us_per_request,
  with_agents_s_per_gb, with_agents_s_per_upload_gb:
      and Proffer's agents on the servers, programs and processes
  machine_us_per_connection, machine_us_per_request, machine_s_per_gb,
  machine_s_per_upload_gb:
      all CPU time of the machine over that of route; may be negative

agents_us_per_connection is the time of Proffer's agents on the servers, programs
and processes; runs_per_connection how often the LB's programs run, and ns_per_run
how long, which the counting lengthens by about one reading of the clock.
connections are those made of one request, errors those that wrk and our
client met.

Fails if a connection went another way than its own, by the counters of
kernels and daemons, or if a client of hunt or single met an error. Latencies and
CPU times decide nothing: see docs/evidence/peers.md for their worth.`,
		example: `  proffer-lab experiment peers --out out
  proffer-lab experiment peers --servers 12 --rounds 10 --json`,
		flags: func(cmd *cobra.Command) {
			flags := cmd.Flags()
			flags.IntVar(&e.Servers, "servers", 4, "servers of the farm, `N`; all share this machine's caches")
			flags.IntVar(&e.Rounds, "rounds", 6, "rounds, in each of which every way has its turn, `N`")
			flags.DurationVar(&e.For, "for", time.Second, "how long each of a turn's five tasks takes, `D`")
		},
		action: does(&e, nil, &e.Seed, &e.Programs),
	}
}

var _ = registerTrial(latencyTrial)

func latencyTrial(*experimentFlags) trial {
	var e peers.Latency
	return trial{
		name:  "latency",
		short: "measure SYN to SYN-ACK: by hash, taken at first, passed on once (6LB Fig. 11c)",
		long: `Opens connections one after the other on an idle farm and takes the time of
connect(2) in the client's namespace. Three ways take turns: single (by hash;
the SYN-ACK goes straight to the client), hunt-first (the first candidate takes
it; the SYN-ACK goes through the load balancer), hunt-second (the first always
passes it on). 6LB Figure 11c has them under load.

--json prints an array of rows, one a way: method, connections, p50_us, p90_us,
p99_us, mean_us.

Fails if connections came otherwise by the agents' counters. How long they
took decides nothing.`,
		example: `  proffer-lab experiment latency --connections 10000 --out out`,
		flags: func(cmd *cobra.Command) {
			cmd.Flags().IntVar(&e.Connections, "connections", 2000, "connections each way, `N`")
		},
		action: does(&e, &e.Servers, &e.Seed, &e.Programs),
	}
}
