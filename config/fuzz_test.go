package config

import (
	"errors"
	"reflect"
	"strings"
	"testing"
)

// A file is refused with positions inside it, or means the same after a round
// trip.

func FuzzParseLB(f *testing.F) {
	seed(f, "lb")
	f.Fuzz(func(t *testing.T, data string) {
		lb, err := ParseLB("lb.yaml", []byte(data))
		if err != nil {
			positioned(t, err, data)
			return
		}
		written := MarshalLB(lb)
		if again, err := ParseLB("written", written); err != nil || !reflect.DeepEqual(lb, again) {
			t.Fatalf("%v\n got %+v\nwant %+v\nfrom\n%s", err, again, lb, written)
		}
	})
}

func FuzzParseAgent(f *testing.F) {
	seed(f, "agent")
	f.Fuzz(func(t *testing.T, data string) {
		agent, err := ParseAgent("agent.yaml", []byte(data), cpus)
		if err != nil {
			positioned(t, err, data)
			return
		}
		written := MarshalAgent(agent)
		if again, err := ParseAgent("written", written, cpus+1); err != nil || !reflect.DeepEqual(agent, again) {
			t.Fatalf("%v\n got %+v\nwant %+v\nfrom\n%s", err, again, agent, written)
		}
	})
}

// FuzzParseFarm: study's FuzzRun runs the accepted farms.
func FuzzParseFarm(f *testing.F) {
	seed(f, "farm")
	f.Add(string(FarmExample))
	f.Fuzz(func(t *testing.T, data string) {
		farm, err := ParseFarm("farm.yaml", []byte(data))
		if err != nil {
			positioned(t, err, data)
			return
		}
		again, err := ParseFarm("farm.yaml", []byte(data))
		if err != nil || !reflect.DeepEqual(farm, again) {
			t.Fatalf("%v\n got %+v\nwant %+v", err, again, farm)
		}
		if n := farm.Servers(); n < 1 || n > MaxFarm || farm.LBs < 1 || farm.Requests < 0 || farm.Service.Family == "" {
			t.Fatalf("%d servers, %d LBs, %d requests, service %+v", n, farm.LBs, farm.Requests, farm.Service)
		}
	})
}

func seed(f *testing.F, file string) {
	t := new(testing.T)
	good := string(read(t, file+".yaml"))
	f.Add(good)
	f.Add(string(read(t, file+"-short.yaml")))
	for section := range strings.SplitSeq(string(read(t, file+".errors")), "\n\n") {
		f.Add(parseCase(strings.TrimSpace(section)).apply(t, good))
	}
}

func positioned(t *testing.T, err error, data string) {
	t.Helper()
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		t.Fatalf("not a list of mistakes: %v", err)
	}
	lines := 1 + strings.Count(strings.ReplaceAll(data, "\r", "\n"), "\n")
	for _, err := range joined.Unwrap() {
		var mistake *Error
		if !errors.As(err, &mistake) {
			continue // "and 7 more errors"
		}
		if mistake.Line < 1 || mistake.Line > lines || mistake.Column < 1 || mistake.Problem == "" {
			t.Fatalf("%q has no position in %d lines", mistake, lines)
		}
		if strings.ContainsAny(mistake.Key, "\n\r") {
			t.Fatalf("%q is not one line", mistake)
		}
	}
}
