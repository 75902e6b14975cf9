package config

import (
	"reflect"
	"testing"

	"proffer/schema"
	"proffer/schema/schematest"
	"proffer/topo"
)

// A file is refused with positions inside it, or means the same after a round
// trip.

func FuzzParseLB(f *testing.F) { fuzz(f, "lb", ParseLB, MarshalLB) }

func FuzzParseAgent(f *testing.F) {
	fuzz(f, "agent", func(file string, data []byte) (*topo.Agent, error) {
		if file == "written" {
			return ParseAgent(file, data, cpus+1) // the file has the cores
		}
		return ParseAgent(file, data, cpus)
	}, MarshalAgent)
}

func FuzzParseEdge(f *testing.F) {
	fuzz(f, "edge", ParseEdge, func(lb *topo.EdgeLB) []byte { return schema.Write(edgeFile(lb)) })
}

func FuzzParseDatapath(f *testing.F) {
	fuzz(f, "nf", ParseDatapath, func(n *topo.Datapath) []byte { return schema.Write(datapathFile(n)) })
}

func fuzz[T any](f *testing.F, name string, parse func(string, []byte) (*T, error), write func(*T) []byte) {
	schematest.Seed(f, name)
	f.Fuzz(func(t *testing.T, data string) {
		noun, err := parse(name+".yaml", []byte(data))
		if err != nil {
			schematest.Positioned(t, err, data)
			return
		}
		text := write(noun)
		if again, err := parse("written", text); err != nil || !reflect.DeepEqual(noun, again) {
			t.Fatalf("%v\n got %+v\nwant %+v\nfrom\n%s", err, again, noun, text)
		}
	})
}
