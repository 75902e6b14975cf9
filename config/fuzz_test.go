package config

import (
	"reflect"
	"testing"

	"proffer/schema/schematest"
)

// A file is refused with positions inside it, or means the same after a round
// trip.

func FuzzParseLB(f *testing.F) {
	schematest.Seed(f, "lb")
	f.Fuzz(func(t *testing.T, data string) {
		lb, err := ParseLB("lb.yaml", []byte(data))
		if err != nil {
			schematest.Positioned(t, err, data)
			return
		}
		written := MarshalLB(lb)
		if again, err := ParseLB("written", written); err != nil || !reflect.DeepEqual(lb, again) {
			t.Fatalf("%v\n got %+v\nwant %+v\nfrom\n%s", err, again, lb, written)
		}
	})
}

func FuzzParseAgent(f *testing.F) {
	schematest.Seed(f, "agent")
	f.Fuzz(func(t *testing.T, data string) {
		agent, err := ParseAgent("agent.yaml", []byte(data), cpus)
		if err != nil {
			schematest.Positioned(t, err, data)
			return
		}
		written := MarshalAgent(agent)
		if again, err := ParseAgent("written", written, cpus+1); err != nil || !reflect.DeepEqual(agent, again) {
			t.Fatalf("%v\n got %+v\nwant %+v\nfrom\n%s", err, again, agent, written)
		}
	})
}
