package main

import (
	"fmt"
	"io"
	"strings"

	"proffer/lab/sim"
	"proffer/lab/study"
)

// meanings says what each spelling in sim.Policies is.
var meanings = map[string]string{
	"single":             "one server by consistent hashing (SC)",
	"rr":                 "servers in turn",
	"wrr-feedback":       "in turn by weights from the servers' busy workers, asked every 200 ms",
	"ecmp":               "one server by hash, all alike",
	"wcmp":               "by hash, weights are the servers' power",
	"awcmp":              "by hash, weights are power / (1 + requests in hand), asked every 500 ms",
	"lsq":                "fewest flows that this LB sees",
	"lsq2":               "the same of two random servers",
	"gsq2":               "fewest flows of all LBs, of two random servers; the same as jsq2",
	"sed":                "shortest expected delay: (flows that this LB sees + 1) / power",
	"sed2":               "the same of two random servers",
	"learned":            "HLB: power learned from the durations of completed flows, reservoir 128; learned:K has another size",
	"learned2":           "the same of two random servers",
	"learned:ages":       "HLB with the ages of flows at data packets, reservoir 32 (Algorithm 1, the authors' code)",
	"learned:ages:fixed": "HLB with a Kalman filter that does not adapt (HLB-FIX)",
	"hunt:static:4":      "6LB: two candidates, the first takes a request if it has less than 4; any C",
	"hunt:dynamic":       "6LB: the same with a threshold that adapts",
	"hunt:always":        "6LB: the first candidate takes everything",
	"guided":             "ours: 4 candidates, led by what servers report on the way; guided:C for 2 to 8",
	"guided:8":           "ours with 8 candidates",
	"jsq":                "join the shortest queue, known to all LBs",
	"jsq2":               "the same of two random servers",
	"jiq":                "join an idle queue",
	"oracle":             "least remaining work / power, known to all LBs",
	"oracle2":            "the same of two random servers",
	"oraclef":            "earliest predicted finish: the bound at equal speeds",
	"oraclef2":           "the same of two random servers",
}

// listSim prints the farms and policies there are.
func listSim(w io.Writer) error {
	var b strings.Builder
	b.WriteString("farms (--farm), or a farm file (--example):\n")
	for _, farm := range study.Names() {
		fmt.Fprintf(&b, "  %-18s %s\n", farm[0], farm[1])
	}
	b.WriteString("\npolicies (--policies), or all:\n")
	for _, name := range sim.Policies() {
		fmt.Fprintf(&b, "  %-18s %s\n", name, meanings[name])
	}
	_, err := io.WriteString(w, b.String())
	return err
}
