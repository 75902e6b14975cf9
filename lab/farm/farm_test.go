package farm

import (
	"flag"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"proffer/schema/schematest"
)

func TestParse(t *testing.T) {
	const ms = time.Millisecond
	for file, want := range map[string]File{
		"farm.yaml": {
			Name: "every:key",
			Groups: []Group{
				{Count: 3, Cores: 2, Speed: 1.5, Discipline: Sharing, Workers: 16, Backlog: 64, Weight: 1},
				{Count: 2, Cores: 4, Speed: 1, Discipline: FIFO, Weight: 3, Threshold: 8},
			},
			LBs: 4, HopLeast: 50 * time.Microsecond, HopMost: 2 * ms,
			ClientRTT: Times{Family: Lognormal, Mean: 20 * ms, SD: 10 * ms},
			FlowTable: 4096, Table: 1021, Choices: 3, Penalty: 40 * time.Second,
			Events: []Event{{At: 10 * time.Second, Kind: Join, First: 3, Last: 4}, {At: time.Minute, Kind: FailLB, LB: 3}},
			Background: []Background{
				{First: 0, Last: 2, Cores: 0.5},
				{First: 4, Last: 4, Cores: 4, From: time.Minute, To: 2 * time.Minute},
			},
			Service: Times{Family: Hyperexponential, Mean: 190 * ms, SD: 400 * ms},
			Stages:  CPUIOCPU,
			IO:      Times{Family: Traced, File: "traces/io.csv", Factor: 1},
			Arrivals: Arrivals{Process: Stepped, Unit: PerSecond, Steps: []Step{
				{Lasting: 30 * time.Second}, {Lasting: time.Minute, Rate: 12.5}, {Rate: 30},
			}},
			Requests: 5000, CountFrom: 0.25, CountTo: 0.75, After: 10 * time.Second, Until: 3 * time.Minute,
			Antagonists: Antagonists{Every: 5 * time.Second, Idle: 0.25, Least: 0.1, Most: 0.7},
			Flood:       Flood{Times: 5, Expires: 3 * time.Second},
		},
		"farm-short.yaml": {
			Name:   "farm-short",
			Groups: []Group{{Count: 1, Cores: 1, Speed: 1, Discipline: Sharing, Workers: 32, Backlog: 128, Weight: 1}},
			LBs:    1, Choices: 2, HopLeast: 100 * time.Microsecond, HopMost: ms,
			Service:  Times{Family: Deterministic, Mean: time.Second},
			Stages:   CPU,
			Arrivals: Arrivals{Process: Poisson, Unit: Rho},
			CountTo:  1,
		},
	} {
		got, err := Parse("some/where/"+file, schematest.Read(t, file))
		if err != nil {
			t.Fatal(err)
		}
		if got.doc = nil; !reflect.DeepEqual(*got, want) {
			t.Errorf("%s:\n got %+v\nwant %+v", file, *got, want)
		}
	}
}

// TestExample: it can be run as it is, and shows every key there is.
func TestExample(t *testing.T) {
	farm, err := Parse("example.yaml", Example)
	if err != nil {
		t.Fatal(err)
	}
	if farm.Servers() != 36 {
		t.Errorf("%d servers", farm.Servers())
	}
	schematest.Keys(t, "the example", string(Example), table(new(File)))
}

// TestExampleAlternatives uncomments each alternative that the example offers.
func TestExampleAlternatives(t *testing.T) {
	alternative := regexp.MustCompile(`(?m)^# (?:distribution|process): .*\n(?:^# (?:mean|sd|shape|short|long|long_share|file|duration_factor|rate|low|high|period|rate_factor): .*\n)*`)
	blocks := alternative.FindAllString(string(Example), -1)
	for _, block := range blocks {
		block = strings.ReplaceAll("\n"+block, "\n# ", "\n  ")
		file := "servers: [{count: 4, cores: 1}]\nservice:" + block
		if strings.Contains(block, "process:") {
			file = string(schematest.Read(t, "farm-short.yaml")) + "arrivals:" + block
		}
		if _, err := Parse("farm.yaml", []byte(file)); err != nil {
			t.Errorf("%v\n%s", err, file)
		}
	}
	if len(blocks) != 8 {
		t.Errorf("%d alternatives were found, want 8", len(blocks))
	}
}

func TestMistake(t *testing.T) {
	farm, err := Parse("farm.yaml", schematest.Read(t, "farm.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]string{
		"io.file":       "farm.yaml:20:33: io.file: is broken",
		"arrivals.rate": "farm.yaml:22:3: arrivals.rate: is broken", // not in the file
		"lbs":           "farm.yaml:10:6: lbs: is broken",
	} {
		if got := farm.Mistake(key, "is broken").Error(); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

var update = flag.Bool("update", false, "rewrite the expected errors in testdata")

func TestRefuses(t *testing.T) {
	schematest.Refused(t, "farm", *update, func(data []byte) error {
		_, err := Parse("farm.yaml", data)
		return err
	})
}

// TestRows: each key is read and written, and the JSON Schema takes it as the parser does.
func TestRows(t *testing.T) {
	schematest.Rows(t, table, "farm.File.doc")
	schematest.Valid(t, "farm.json", Schema(), table)
}
