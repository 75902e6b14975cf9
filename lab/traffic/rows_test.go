package traffic

import (
	"bytes"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"
)

func someRows() []Row {
	from := netip.MustParseAddrPort("[2001:db8::7]:40000")
	return []Row{
		{ID: 0, From: from, Intended: 1, Started: 20*ms + 1, Connected: 21 * ms, Done: 86400*time.Second + 7,
			Service: 19*ms + 123457, Server: "s1", Outcome: OK, SYNRetransmits: 2, Hops: 1, LB: "lb1"},
		{ID: 1, Intended: 5 * time.Second, Outcome: Failed, Cause: "bind to x: \"no\",\nreally"},
	}
}

func TestRowsComeBackAsTheyWere(t *testing.T) {
	var file bytes.Buffer
	if err := table(someRows()).CSV(&file); err != nil {
		t.Fatal(err)
	}
	got, err := ReadRows(&file)
	if err != nil || !slices.Equal(got, someRows()) {
		t.Errorf("got %+v, %v, want %+v", got, err, someRows())
	}
}

func TestRowsAsText(t *testing.T) {
	var file bytes.Buffer
	if err := table(someRows()[:1]).CSV(&file); err != nil {
		t.Fatal(err)
	}
	const want = `id,client,intended_s,service_s,started_s,connected_s,done_s,latency_s,outcome,server,hops,lb,syn_retransmits,cause
0,[2001:db8::7]:40000,0.000000001,0.019123457,0.020000001,0.021000000,86400.000000007,86400.000000006,ok,s1,1,lb1,2,
`
	if file.String() != want {
		t.Errorf("got\n%swant\n%s", file.String(), want)
	}
}

func TestRowsThatCannotBeRead(t *testing.T) {
	var file bytes.Buffer
	_ = table(someRows()[:1]).CSV(&file)
	good := file.String()
	for _, c := range []struct{ name, text, want string }{
		{"nothing", "", "EOF"},
		{"another file", strings.Replace(good, "lb,", "balancer,", 1), "columns"},
		{"a word for a number", strings.Replace(good, ",2,\n", ",two,\n", 1), "line 2: syn_retransmits"},
		{"a bad time", strings.Replace(good, "0.019123457", "soon", 1), "line 2: service_s"},
		{"a bad address", strings.Replace(good, "[2001:db8::7]", "nowhere", 1), "line 2: client"},
		{"a short line", good + "1,2\n", "wrong number of fields"},
	} {
		_, err := ReadRows(strings.NewReader(c.text))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got error %v, want one with %q", c.name, err, c.want)
		}
	}
}
