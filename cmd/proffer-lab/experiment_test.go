package main

import (
	"strings"
	"testing"

	"proffer/cmd/internal/cli"
	"proffer/cmd/internal/clitest"
	"proffer/lab/farmrun"
)

func TestExperimentWrongUsage(t *testing.T) {
	for _, c := range []struct {
		args string // after experiment
		want string // the line begins so
	}{
		{"siege", "unknown experiment \"siege\"; see `proffer-lab experiment --list`\n"},
		{"--colour", "unknown flag: --colour; see `proffer-lab experiment --help`\n"},
		{"resiliency now", "proffer-lab experiment resiliency takes no argument, got \"now\"; see `proffer-lab experiment resiliency --help`\n"},
		{"resiliency --colour", "unknown flag: --colour; see `proffer-lab experiment resiliency --help`\n"},
		{"resiliency --methods=", "--methods: name at least one\n"},
		{"resiliency --methods ask", "--methods: unknown method \"ask\": want hunt, hunt-no-history, single or stateless\n"},
		{"resiliency --methods hunt,hunt", "--methods: hunt stands there twice\n"},
		{"resiliency --flows 0", "--flows 0: want 1 to 8000\n"},
		{"resiliency --changes 16", "--changes 16: want 1 to 15\n"},
		{"resiliency --servers 1", "--servers 1: want 2 to 240, fresh ones for 10 changes included\n"},
		{"resiliency --servers 241", "--servers 241: want 2 to 240"},
		{"resiliency --buckets 11", "--buckets 11: want 12 to 16777216\n"},
		{"resiliency --seed -1", "invalid argument \"-1\" for \"--seed\" flag"},
		{"latency --connections 0", "--connections 0: want 1 to 100000\n"},
		{"latency --servers 1", "--servers 1: want 2 to 250"},
		{"load --programs nonesuch", "--programs: unknown program \"nonesuch\": want nginx-h1, "},
		{"load --each 100ms", "--each 100ms: want 200ms to 1m\n"},
		{"load --idle 1001", "--idle 1001: want 0 to 1000\n"},
		{"lbkill --lbs 1", "--lbs 1: want 2 to 16"},
		{"lbkill --every 1s", "--every 1s: want 2s to 1m\n"},
		{"lbkill --every 5s --for 9s", "--for 9s: want at least twice --every, and at most 1h\n"},
		{"lbkill --detect 1s", "--detect 1s: want 0s to 900ms"},
		{"lbkill --rate NaN", "--rate NaN: want 1 to 2000\n"},
		{"lbkill --servers 0", "--servers 0: want 1 to 250\n"},
		{"lbkill --idle -1", "--idle -1: want 0 to 8000\n"},
		{"lbkill --bulk 201", "--bulk 201: want 0 to 200\n"},
		{"loss --loss=", "invalid argument \"\" for \"--loss\" flag"},
		{"loss --loss 0.3", "--loss 0.3: want 0 to 0.2"},
		{"loss --loss NaN", "--loss NaN: want 0 to 0.2"},
		{"loss --requests 0", "--requests 0: want 1 to 100000\n"},
		{"loss --servers 251", "--servers 251: want 2 to 250"},
		{"flood --rates=", "invalid argument \"\" for \"--rates\" flag"},
		{"flood --rates -5", "--rates -5: want 0 to 10000000\n"},
		{"flood --for 500ms", "--for 500ms: want 1s to 1m\n"},
		{"flood --flows 0", "--flows 0: want 1 to 8000\n"},
		{"flood --servers 0", "--servers 0: want 1 to 250\n"},
		{"forge --packets 999", "--packets 999: want 1000 to 100000000\n"},
		{"peers --rounds 0", "--rounds 0: want 1 to 100\n"},
		{"peers --for 100ms", "--for 100ms: want 200ms to 1m\n"},
		{"peers --servers 1", "--servers 1: want 2 to 250"},
		{"storm --servers 2", "--servers 2: want 3 to 250: one is in a container\n"},
		{"storm --every 100ms", "--every 100ms: want 500ms to 1m\n"},
		{"storm --for 5s --every 1s", "--for 5s: want at least 8 times --every"},
		{"storm --lbs 0", "--lbs 0: want 1 to 16\n"},
		{"storm --rate 0", "--rate 0: want 1 to 2000\n"},
		{"storm --flows 0", "--flows 0: want 1 to 8000\n"},
		{"apache --figures srlb-9", "--figures: unknown figure \"srlb-9\": want srlb-2, srlb-3, srlb-4, srlb-5, 6lb-10a, 6lb-10b or 6lb-11e\n"},
		{"apache --servers 1", "--servers 1: want 2 to 250"},
		{"apache --loads 0.5,1", "--loads: 1: want loads above 0 and below 1\n"},
		{"apache --share 1.5", "--share 1.5: want 0.05 to 1 of a core\n"},
		{"apache --period 1ms", "--period 1ms: want 1ms to 1s, and a quota of a millisecond at least"},
		{"apache --mean 1us", "--mean 1µs: want 1ms to 1s\n"},
		{"apache --for 2s --quick", "--for 500ms: want 1s to 10m\n"},
		{"gain --programs redis", "--programs: unknown program \"redis\": want nginx-h1, "},
		{"gain --policy single", "--policy single: want a hunting policy, such as hunt:static:2\n"},
		{"gain --servers 1", "--servers 1: want 2 to 250\n"},
		{"gain --share 0.01", "--share 0.01: want 0.1 to 1 of a core\n"},
		{"gain --mean 2s", "--mean 2s: want 1ms to 1s\n"},
		{"gain --load 1", "--load 1: want more than 0, less than 1\n"},
		{"gain --for 1ms", "--for 1ms: want 1s to 10m\n"},
		{"hlb --figures 10", "--figures: unknown figure \"10\": want 7, 8, 9, 11, 14, 16, 20, 21, 23 or 24\n"},
		{"hlb --policies random", "--policies: unknown policy \"random\": want single, "},
		{"hlb --figures 9 --policies stateless", "--policies: stateless is in none of these figures: want lsq, "},
		{"hlb --policies lsq,rr", "--policies: rr is in none of these figures: want ecmp, "},
		{"hlb --figures 24 --policies lsq", "--policies: these figures compare none\n"},
		{"hlb --servers 5", "--servers 5: want an even number from 2 to 250: half of them have more cores\n"},
		{"hlb --mean 1us", "--mean 1µs: want 1ms to 1s\n"},
		{"hlb --for 100ms --quick", "--for 100ms: want 1s to 10m\n"},
		{"edge --figures 6", "--figures: unknown figure \"6\": want 3, 4 or 5\n"},
		{"edge --balancers hash", "--balancers: unknown balancer \"hash\": want model, monitor or wrr\n"},
		{"edge --shares 70", "--shares: 70: want 1 to 60\n"},
		{"edge --cost 1us", "--cost 1µs: want 2µs to 1ms\n"},
		{"edge --report-noise 2", "--report-noise 2: want 0 to 1\n"},
		{"edge --for 100ms", "--for 100ms: want 1s to 10m\n"},
		{"rtt --rtts 20ms", "--rtts: want 0s first, which the others are compared with\n"},
		{"rtt --rtts 0s,2s", "--rtts: want 0s to 500ms\n"},
		{"rtt --servers 1", "--servers 1: want 2 to 250\n"},
		{"rtt --lbs 17", "--lbs 17: want 1 to 16\n"},
		{"rtt --cores 17", "--cores 17: want 1 to 16\n"},
		{"rtt --mean 0s", "--mean 0s: want 1ms to 10s\n"},
		{"rtt --load 1", "--load 1: want more than 0, less than 1\n"},
		{"rtt --for 1ms", "--for 1ms: want 1s to 1h\n"},
		{"rtt --flood 0", "--flood 0: want more than 0, to 100\n"},
		{"forge --servers 1", "--servers 1: want 2 to 250\n"},
	} {
		wantLine(t, append([]string{"experiment"}, strings.Split(c.args, " ")...), cli.Usage, c.want)
	}
}

// trials are the experiments there are, with the fields of their --json.
func trials() map[string][]string {
	return map[string][]string{
		"resiliency": {"method", "changes", "flows", "removed", "extra_resets", "silent", "recovered", "first_takes", "per_change", "cold", "live"},
		"apache": {"calibration", "share", "share_min", "share_max", "overhead_s", "capacity_per_s", "service_s", "runs", "servers", "load", "policy",
			"requests", "refusals", "failed", "mean_s", "mean", "mean_ci", "p50", "p90", "p99", "fairness", "busy", "first_accept", "fidelity",
			"mean_single_over_this", "server_cores", "machine_cores", "unclaimed"},
		"load": {"program", "requests", "signal", "default", "bias", "bias_requests", "correlation", "idle"},
		"gain": {"program", "load", "policy", "requests", "failed", "mean_s", "p50_s", "p90_s", "gain_s", "gain_share", "offered", "late_s"},
		"rtt": {"rtt_ms", "policy", "forged_per_s", "requests", "failed", "mean_ms", "p50_ms", "p90_ms", "p90_net_ms", "p90_over", "p90_net_over",
			"weights", "counting", "box_late_ms"},
		"latency": {"method", "connections", "p50_us", "p90_us", "p99_us", "mean_us"},
		"lbkill":  {"kills", "host_kills", "requests", "failed", "detect_ms", "swallowed", "longest_stall_ms", "idle_flows", "idle_lost", "bulk_flows", "bulk_lost", "bulk_bytes"},
		"loss":    {"loss", "method", "requests", "ok", "failed", "resets", "served_twice", "unserved", "accepted_twice", "requested_twice", "lost_frames"},
		"flood":   {"rate", "sent_pps", "offered", "cpu", "established", "lost", "silent_during", "recovered", "table_full", "tried", "ok", "p90_ms", "tried_spin", "ok_spin", "p90_spin_ms"},
		"forge":   {"packets", "signals", "floods", "seen", "changed_maps", "delivered", "accepted", "entries", "flows", "lost", "asking", "recounted", "counters"},
		"storm":   {"seconds", "lbs", "servers", "requests", "failed", "excused", "longest_ms", "flows", "flows_lost", "abuses", "name", "times", "counter", "counted", "seed"},
		"hlb": {"figure", "shows", "scale", "beside", "published", "goal", "ours", "unclaimed", "reason", "costs", "connection_ns", "rate_of_hash", "runs", "policy", "lbs", "cores", "load", "requests", "course", "rtt_ms",
			"answered", "failed", "mean_s", "sd_s", "p50_s", "p90_s", "p99_s", "slow_mean_s", "fast_mean_s", "fast_share", "fast_queue_share", "weights_ratio", "fidelity"},
		"edge": {"figure", "balancer", "share", "cpu_difference", "cpu_difference_30ms", "throughput", "offered", "latency_us", "weights_sd", "level_s", "scale", "report_noise", "chain", "payload_bytes", "predicted_by_start_cost", "predicted_load", "measured_load", "measured_sd", "null"},
		"peers": {"way", "connections_per_s", "requests_per_s", "gbit_per_s", "upload_gbit_per_s", "p50_us", "p99_us", "p50_over_route", "p50_over_ecmp", "late_p99_us",
			"cpu_us_per_connection", "cpu_us_per_request", "cpu_s_per_gb", "cpu_s_per_upload_gb",
			"with_softirq_us_per_connection", "with_softirq_us_per_request", "with_softirq_s_per_gb", "with_softirq_s_per_upload_gb",
			"with_agents_us_per_connection", "with_agents_us_per_request", "with_agents_s_per_gb", "with_agents_s_per_upload_gb",
			"machine_us_per_connection", "machine_us_per_request", "machine_s_per_gb", "machine_s_per_upload_gb",
			"agents_us_per_connection", "runs_per_connection", "ns_per_run", "connections", "errors"},
	}
}

// TestExperimentList: the verb alone and --list print a line an experiment.
func TestExperimentList(t *testing.T) {
	code, list, stderr := call(t, "experiment", "--list")
	if code != cli.OK || stderr != "" {
		t.Fatalf("exit %d, stderr %q", code, stderr)
	}
	if _, bare, _ := call(t, "experiment"); bare != list {
		t.Errorf("proffer-lab experiment alone prints otherwise than with --list:\n%s", bare)
	}
	if n := strings.Count(list, "\n"); n != len(trials()) {
		t.Errorf("%d lines for %d experiments:\n%s", n, len(trials()), list)
	}
	for name := range trials() {
		if !strings.Contains("\n"+list, "\n"+name+"  ") {
			t.Errorf("%s is not listed:\n%s", name, list)
		}
	}
}

// TestExperimentHelpNamesEveryField: they are the interface of --json.
func TestExperimentHelpNamesEveryField(t *testing.T) {
	for name, fields := range trials() {
		code, text, stderr := call(t, "help", "experiment", name)
		if code != cli.OK || stderr != "" {
			t.Errorf("proffer-lab help experiment %s: exit %d, stderr %q", name, code, stderr)
		}
		for _, word := range append(fields, "--seed", "--servers", "--json", "--out", "Fails if") {
			if !strings.Contains(text, word) {
				t.Errorf("proffer-lab help experiment %s does not name %s", name, word)
			}
		}
		clitest.Program(newRoot).WantFlags(t, "experiment", name)
	}
}

func TestStepLine(t *testing.T) {
	line, last := stepLine(farmrun.Step{Doing: "waiting", Done: 1, Total: 3, Left: 61e9})
	if line != "[1/3] waiting, 1:01 left" || last {
		t.Errorf("%q, %v", line, last)
	}
	if _, last = stepLine(farmrun.Step{Done: 3, Total: 3}); !last {
		t.Error("the last step is not the last")
	}
}
