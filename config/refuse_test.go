package config

import (
	"flag"
	"fmt"
	"strings"
	"testing"

	"proffer/schema/schematest"
	"proffer/topo"
)

var update = flag.Bool("update", false, "rewrite the expected errors in testdata")

func TestRefuses(t *testing.T) {
	schematest.Refused(t, "lb", *update, func(data []byte) error {
		_, err := ParseLB("lb.yaml", data)
		return err
	})
	schematest.Refused(t, "agent", *update, func(data []byte) error {
		_, err := ParseAgent("agent.yaml", data, cpus)
		return err
	})
}

func TestRefusesTooMany(t *testing.T) {
	lb, err := ParseLB("lb.yaml", schematest.Read(t, "lb.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	lb.Services = lb.Services[:1]
	for i := 1; i <= topo.MaxServices; i++ {
		s := lb.Services[0]
		s.Name, s.VIP.Port = fmt.Sprint("web", i), vipAt(uint16(1000+i)).Port
		lb.Services = append(lb.Services, s)
	}
	wantRefusal(t, MarshalLB(lb), "services: has 1025 elements; want a list of 1 to 1024 mappings")

	web := &lb.Services[0]
	web.Servers, web.Version = manyServers(MaxServers), 1
	for _, c := range []struct {
		others []topo.Service
		before []topo.Server
		want   string
	}{
		{others: lb.Services[1:2], want: "services: have 4099 servers together, with those of their history; want at most 4096"},
		{before: manyServers(1), want: ""}, // one of the others
		{before: lb.Services[1].Servers, want: "services: have 4099 servers together"},
		{before: manyServers(MaxServers), want: ""},
		{before: manyServers(MaxServers + 1), want: "services[0].history[0].servers: has 4097 elements; want a list of 0 to 4096 mappings"},
	} {
		few := *lb
		few.Services = append([]topo.Service{*web}, c.others...)
		if c.before != nil {
			few.Services[0].History = []topo.Version{{Servers: c.before}}
		}
		if c.want == "" {
			sameLB(t, &few)
		} else {
			wantRefusal(t, MarshalLB(&few), c.want)
		}
	}

	lb.Services = lb.Services[:2]
	web.Servers = manyServers(MaxServers + 1)
	wantRefusal(t, MarshalLB(lb), "services[0].servers: has 4097 elements; want a list of 0 to 4096 mappings")
	web.Servers, web.Version = manyServers(1), maxHistory+1
	for v := maxHistory; v >= 0; v-- {
		web.History = append(web.History, topo.Version{Version: v, Servers: manyServers(1)})
	}
	wantRefusal(t, MarshalLB(lb), "services[0].history: has 33 elements; want a list of 1 to 32 mappings")
}

// TestLinkNames: a link has a name that the kernel accepts.
func TestLinkNames(t *testing.T) {
	for name, right := range map[string]bool{
		"a": true, "eth0": true, "eth0.7": true, "...": true, "br-@!~": true, "fifteen-letters": true,
		"": false, "sixteen--letters": false, ".": false, "..": false, "a/b": false, "a:b": false, "a b": false, "a\tb": false, "a\x7f": false,
	} {
		if got, err := Link().Parse(name); (err == nil) != right || right && got != name {
			t.Errorf("%q is read as %q, %v", name, got, err)
		}
	}
}

func manyServers(n int) []topo.Server {
	servers := make([]topo.Server, n)
	for i := range servers {
		servers[i] = host(fmt.Sprint("s", i), fmt.Sprintf("5f00:0:3:%x::/64", i))
	}
	return servers
}

func wantRefusal(t *testing.T, data []byte, want string) {
	t.Helper()
	if _, err := ParseLB("lb.yaml", data); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v\nwant %s", err, want)
	}
}
