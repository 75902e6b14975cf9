package main

import (
	"fmt"
	"io"
	"strings"

	"proffer/lab/sim"
	"proffer/lab/study"
)

// listSim prints the farms and policies there are.
func listSim(w io.Writer) error {
	var b strings.Builder
	b.WriteString("farms (--farm), or a farm file (--example):\n")
	for _, farm := range study.Names() {
		fmt.Fprintf(&b, "  %-18s %s\n", farm[0], farm[1])
	}
	b.WriteString("\npolicies (--policies), or all, by what they see:\n")
	sees := ""
	for _, p := range sim.Spellings() {
		if s := sim.Sees(p.Name).String(); s != sees {
			sees = s
			fmt.Fprintf(&b, " %s\n", s)
		}
		fmt.Fprintf(&b, "  %-18s %s\n", p.Name, p.Means)
	}
	_, err := io.WriteString(w, b.String())
	return err
}
