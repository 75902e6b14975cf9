package agentless

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"proffer/topo"
)

// Report is a step and the state of a host.
type Report struct {
	Why   string `json:"why"`
	Do    string `json:"command,omitempty"`
	Undo  string `json:"undo,omitempty"`
	OK    *bool  `json:"ok,omitempty"` // none: not looked at
	Lacks string `json:"wrong,omitempty"`
}

// Reports are the steps, without a look at any host.
func (s *Setup) Reports() (reports []Report) {
	for _, step := range s.Steps {
		reports = append(reports, Report{Why: step.Why, Do: step.Do, Undo: step.Undo})
	}
	return reports
}

// Check looks at this host, and counts the steps that it lacks.
func (s *Setup) Check() (reports []Report, lacking int, err error) {
	reports = s.Reports()
	for i, step := range s.Steps {
		lacks, err := step.lacks(&host{})
		if errors.Is(err, fs.ErrNotExist) { // a setting of a link that is not there
			lacks, err = err.Error(), nil
		}
		if err != nil {
			return nil, 0, err
		}
		ok := lacks == ""
		reports[i].OK, reports[i].Lacks = &ok, lacks
		if !ok {
			lacking++
		}
	}
	return reports, lacking, nil
}

// Script is the commands for a shell, each behind its reason.
func (s *Setup) Script() string {
	var b strings.Builder
	fmt.Fprintf(&b, "# Server %s of Proffer, without an agent. Link towards the LBs: %s.\n", s.Server, s.Link)
	for _, u := range s.Uses {
		fmt.Fprintf(&b, "# Service %s, %s: %s.\n", u.Service, u.VIP, u.Delivery.Row().Meaning)
	}
	b.WriteString("set -e\n")
	for _, step := range s.Steps {
		fmt.Fprintf(&b, "\n# %s\n", step.Why)
		if step.Do != "" {
			fmt.Fprintln(&b, step.Do)
		}
	}
	for _, line := range s.advice() {
		fmt.Fprintf(&b, "\n# %s\n", line)
	}
	return b.String()
}

// UndoScript is the commands that take the set-up back, the last step's first.
func (s *Setup) UndoScript() string {
	var b strings.Builder
	fmt.Fprintf(&b, "# Server %s of Proffer: its set-up taken back.\n", s.Server)
	for _, step := range slices.Backward(s.Steps) {
		switch {
		case step.Undo != "":
			fmt.Fprintln(&b, step.Undo)
		case strings.HasPrefix(step.Do, "sysctl "):
			fmt.Fprintf(&b, "# as it is, for its value before is not known: %s\n", step.Do)
		}
	}
	return b.String()
}

// advice is for lengths of packets.
func (s *Setup) advice() (lines []string) {
	if s.has(func(u Use) bool { return u.Delivery.SRv6() }) {
		lines = append(lines, "MTU: the LB adds 40 bytes, and answers longer packets with packet too big. "+
			"`advmss 1400` in the route to the clients (MTU − 100) spares them that.")
	}
	if s.has(is(topo.ByVXLAN)) {
		lines = append(lines, "MTU: the LB adds 50 bytes over IPv4 and 70 over IPv6, and answers longer packets with packet too big. "+
			"`advmss 1370` in the route to the clients (MTU − 130) spares them that.")
	}
	return lines
}
