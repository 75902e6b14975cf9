package farm

import (
	"reflect"
	"testing"

	"proffer/schema/schematest"
)

// FuzzParse: a file is refused with positions inside it, or means the same each time;
// study's FuzzRun runs the accepted farms.
func FuzzParse(f *testing.F) {
	schematest.Seed(f, "farm")
	f.Add(string(Example))
	f.Fuzz(func(t *testing.T, data string) {
		farm, err := Parse("farm.yaml", []byte(data))
		if err != nil {
			schematest.Positioned(t, err, data)
			return
		}
		again, err := Parse("farm.yaml", []byte(data))
		if err != nil || !reflect.DeepEqual(farm, again) {
			t.Fatalf("%v\n got %+v\nwant %+v", err, again, farm)
		}
		if n := farm.Servers(); n < 1 || n > MaxServers || farm.LBs < 1 || farm.Requests < 0 || farm.Service.Family == "" {
			t.Fatalf("%d servers, %d LBs, %d requests, service %+v", n, farm.LBs, farm.Requests, farm.Service)
		}
	})
}
