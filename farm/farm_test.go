package farm

import (
	"flag"
	"reflect"
	"slices"
	"testing"

	"proffer/schema"
	"proffer/schema/schematest"
)

var update = flag.Bool("update", false, "rewrite the expected errors and documents")

func parsed(t testing.TB, text string) *Farm {
	t.Helper()
	f, _, err := Parse("farm.yaml", []byte(text))
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return f
}

func good(t testing.TB) string { return string(schematest.Read(t, "farm.yaml")) }

// TestRoundTrip: a farm that is written is read as the same.
func TestRoundTrip(t *testing.T) {
	for _, text := range []string{good(t), string(schematest.Read(t, "farm-short.yaml"))} {
		f := parsed(t, text)
		written := string(Marshal(f))
		if again := parsed(t, written); !reflect.DeepEqual(f, again) {
			t.Errorf("got %+v\nwant %+v\nfrom\n%s", again, f, written)
		}
	}
}

// TestRows: each key is read and written.
func TestRows(t *testing.T) {
	schematest.Rows(t, table, "topo.EdgeService.Instances", "topo.Service.Name", "topo.Service.Version", "topo.Service.Recovery", "topo.Service.Servers",
		"topo.Offering.Name", "topo.Offering.VIP", "topo.Offering.Wire", "topo.User.Run",
		"topo.VIP.Addr", "topo.VIP.Port", "topo.VIP.Protocol", "topo.Service.VIP", "farm.At.Routed")
}

// TestExample can be used as it is.
func TestExample(t *testing.T) {
	parsed(t, string(Example()))
	schematest.Keys(t, "the example", string(Example()), nil)
}

// TestSchema: a validator takes the JSON Schema as the parser takes the rows.
func TestSchema(t *testing.T) {
	for _, part := range []string{"nodes", "services", "chains"} { // each alone, as the files have all of the others
		of := func(f *Farm) []schema.Entry {
			return slices.DeleteFunc(table(f), func(e schema.Entry) bool { return e.Key != "farm" && e.Key != part })
		}
		schematest.Valid(t, part+".json", schema.Publish("", "", of(new(Farm))), of)
	}
	validate := schematest.Validator(t, "farm.json", Schema())
	if err := validate(good(t)); err != nil {
		t.Error(err)
	}
}

// TestRefuses plays each mistake on the good file.
func TestRefuses(t *testing.T) {
	schematest.Refused(t, "farm", *update, func(data []byte) error {
		_, _, err := Parse("farm.yaml", data)
		return err
	})
}

// FuzzParse: a file is refused with positions inside it, or means the same after a round trip.
func FuzzParse(f *testing.F) {
	schematest.Seed(f, "farm")
	f.Fuzz(func(t *testing.T, data string) {
		farm, _, err := Parse("farm.yaml", []byte(data))
		if err != nil {
			schematest.Positioned(t, err, data)
			return
		}
		text := Marshal(farm)
		if again, _, err := Parse("written", text); err != nil || !reflect.DeepEqual(farm, again) {
			t.Fatalf("%v\n got %+v\nwant %+v\nfrom\n%s", err, again, farm, text)
		}
	})
}
