package farm

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"

	"proffer/schema/schematest"
)

// mistake is an edit of a line of the good file, and what is said of it there.
type mistake struct{ line, was, is, want string }

// catalogue has a mistake of each kind. line begins the line that is edited, once trimmed; were it not the only one,
// it has "HEAD › " before it, for a line after the one that begins with HEAD.
var catalogue = []mistake{
	{"farm:", "shop", "the shop", "farm: \"the shop\" is not a name"},
	{"farm:", "farm:", "fram:", "fram: unknown key; did you mean farm?"},
	{"version:", "7", "-7", "version: \"-7\" is not a whole number"},
	{"version:", "7", "7.5", "version: \"7.5\" is not a whole number"},
	{"domain:", "fc00:1::/32", "fc00:1::1/32", "domain[1]: \"fc00:1::1/32\" has bits behind the prefix (write fc00:1::/32)"},
	{"domain:", "fc00:1::/32", "5f00::/16", "domain[1]: \"5f00::/16\" is already that of domain[0]"},
	{"lb1:", "5f00:0:1:1::/64", "5e00:0:1:1::/64", "nodes.lb1.locator: \"5e00:0:1:1::/64\" lies outside domain (line 3)"},
	{"lb1:", "{lb: 2001:db8:1::1,", "{lb: lb1.example,", "nodes.lb1.lb: \"lb1.example\" is not the LB's IPv6 or IPv4 address"},
	{"lb1:", "{lb: 2001:db8:1::1,", "{", "nodes.lb1: has none of the keys lb, server, edge, nf; want one"},
	{"lb2: › lb:", "2001:db8:1::2", "2001:db8:2::77", "\"2001:db8:2::77\" is already that of nodes.lb2.lb"},
	{"lb2: › locator:", "5f00:0:1:2::/64", "5f00:0:1:2::/63", "nodes.lb2.locator: \"5f00:0:1:2::/63\" is not an IPv6 /64 prefix"},
	{"state:", "/var", "var", "nodes.lb2.state: \"var/lib/shop/lb2.json\" is not the absolute path"},
	{"pin:", "shop/lb2", "shop/lb.2", "nodes.lb2.pin: \"/sys/fs/bpf/shop/lb.2\" has a dot in its last part"},
	{"control:", "/run/shop/lb2.sock", "[/run/shop/lb2.sock]", "nodes.lb2.control: is a list; want an absolute path"},
	{"flows:", "1024", "10", "nodes.lb2.flows: \"10\" is not a whole number from 64"},
	{"idle:", "90s", "90", "nodes.lb2.idle: \"90\" is not a duration"},
	{"linger:", "1500ms", "soon", "nodes.lb2.linger: \"soon\" is not a duration"},
	{"link:", "eth0", "eth/0", "nodes.lb2.link: \"eth/0\" is not the name of a network interface"},
	{"lb3:", "link: eth0, ", "", "nodes.lb3: states no link, and lb: routed no address to find it by"},
	{"lb3:", "5f00:0:1:3::/64", "5f00:0:1:77::/64", "\"5f00:0:1:77::/64\" is already that of nodes.lb3.locator"},
	{"s1:", ", locator: 5f00:0:2:1::/64", "", "nodes.s1.locator: is missing, and delivery: agent"},
	{"s1:", "2001:db8:2::1", "fe80::1", "nodes.s1.server: \"fe80::1\" is link-local"},
	{"s2: › server:", "2001:db8:2::2", "5f00:0:2:77::2", "nodes.s2.server: \"5f00:0:2:77::2\" lies in nodes.q1.locator"},
	{"s2: › weight:", "2", "70000", "nodes.s2.weight: \"70000\" is not a whole number from 0 to 65535"},
	{"embryonic:", "embryonic", "embrionic", "nodes.s2.embrionic: unknown key; did you mean embryonic?"},
	{"s3:", "server: 10.0.0.3", "server: 10.0.0.3, lb: 10.0.0.103", "nodes.s3.server: does not go with lb"},
	{"s4:", "10.0.0.4", "10.0.0.4, delivery: agnet", "nodes.s4.delivery: \"agnet\" is not one of agent, dt6, dx6, dx4, l2, vxlan; did you mean agent?"},
	{"s4:", "10.0.0.4", "10.0.0.4, vni: 7", "nodes.s4.vni: goes only with delivery: vxlan"},
	{"s5:", "weight: 5", "weight: 5, weight: 6", "nodes.s5.weight: is given twice; the first is at line"},
	{"s6:", "10.0.0.6", "10.0.0.6, cores: 3", "nodes.s6.cores: goes only with nf"},
	{"l1:", "delivery: l2", "delivery: l2, locator: 5f00:0:2:78::/64", "nodes.l1.locator: does not go with delivery: l2"},
	{"l2:", "10.0.0.12", "routed, link: eth0", "nodes.l2.server: \"routed\" names no address"},
	{"k1:", "[dt6, dx4]", "[dt6, dx6]", "nodes.k1.delivery[1]: \"dx6\" does not go with dt6"},
	{"vni:", "100", "0", "nodes.v1.vni: \"0\" is not a whole number from 1"},
	{"mac:", "02:00", "03:00", "nodes.v1.mac: \"03:00:00:00:00:07\" is not the link address of one host"},
	{"spare:", "spare:", "q1:", "nodes.q1: is given twice; the first is at line 35"},
	{"world:", "eth1", "[eth1]", "nodes.gw1.world: is a list; want the name of a network interface"},
	{"clients:", "clients", "client", "nodes.gw1.client: unknown key; did you mean clients?"},
	{"balancer:", "monitor", "monitr", "nodes.gw1.balancer: \"monitr\" is not one of model, monitor, wrr; did you mean monitor?"},
	{"public:", "203.0.113.1/32", "10.1.0.0/24", "10.1.0.0 lies in 10.1.0.0/16 of the client network"},
	{"replica:", "/usr/local/sbin/start-node", "start-node", "nodes.gw1.replica[0]: \"start-node\" is no absolute path"},
	{"cores:", "2", "two", "nodes.n1.cores: \"two\" is not a whole number"},
	{"cpus:", "own", "[]", "nodes.n1.cpus: is a list; want one of shared, own"},
	{"number: 200", "200", "300", "nodes.n1.number: \"300\" is not a whole number from 0 to 255"},
	{"nf: 192.0.2.3", "192.0.2.3", "routed", "nodes.n2.nf: \"routed\" names no address"},
	{"first_port: 32768", "32768", "4096", "nodes.n2.first_port: is needed: source NAT gives ports"},
	{"web: › vip:", "192.0.2.10", "10.0.0.77", "services.web.vip[1]: \"10.0.0.77\" is the address of nodes.q2.server"},
	{"web: › port:", "443", "0", "services.web.port[1]: \"0\" is not a port"},
	{"web: › port:", "443", "70-90", "services.web.port[1]: \"70-90\" overlaps \"80\""},
	{"web: › dispatch:", "hunt", "hnut", "services.web.dispatch: \"hnut\" is not one of"},
	{"choices:", "3", "5", "services.web.choices: \"5\" is not a whole number from 1 to 4"},
	{"buckets:", "8191", "many", "services.web.buckets: \"many\" is not a whole number"},
	{"workers:", "16", "1", "dynamic.initial: 2 is above workers, 1"},
	{"web: › load:", "busy", "page", "services.web.page: is missing, but required with load: page"},
	{"- s1", "s1", "s9", "services.web.servers[0].name: \"s9\" is no node of this farm; did you mean"},
	{"- {name: s2", "weight: 3", "wait: 3", "services.web.servers[1].wait: unknown key"},
	{"- s3", "s3", "q2", "services.web.servers[2]: \"l2\" has no agent, which dispatch: hunt needs"},
	{"- {name: s4", "static:4", "statics:4", "services.web.servers[3].acceptance: \"statics:4\" is not"},
	{"dns: › port:", "udp/53", "any", "services.dns.port: \"any\" is not served yet"},
	{"dns: › servers:", "s5, s6", "s1, s6", "services.dns.servers[1].name: \"s1\" is already that of services.dns.servers[0].name"},
	{"recovery: history", "history", "agent", "services.dns.recovery: \"agent\" is not one of history, agents; did you mean agents?"},
	{"bare: › port:", "8000-8003", "8003-8000", "services.bare.port: \"8003-8000\" ends before it begins"},
	{"bare: › port:", "8000-8003", "1-2000", "services.bare.port: makes"},
	{"learn_every:", "250ms", "1ms", "services.bare.learn_every: \"1ms\" is not a duration from 100ms"},
	{"- l2", "l2", "q3", "services.bare.servers[1].name: \"q3\" is an lb (line 37)"},
	{"shop: › vip:", "2001:db8:f::4", "::1", "services.shop.vip: \"::1\" is loopback"},
	{"load_from:", "http://127.0.0.1:9100/metrics", "127.0.0.1:9100", "services.shop.load_from: \"127.0.0.1:9100\" is not an absolute path"},
	{"pool:", "5", "3", "services.shop.history[0].version: 4 is not below 3"},
	{"shop: › servers:", "[s5, s6]", "s5", "services.shop.servers: is text; want a list"},
	{"- {name: old", "5f00:0:2:9::/64", "10.0.0.0/8", "services.shop.history[0].servers[0].locator: \"10.0.0.0/8\" is not an IPv6 /64 prefix"},
	{"number: 5", "5", "0", "chains.guard.number: \"0\" is not a whole number"},
	{"- {function: cost", "time: 2us", "time: 2h", "chains.guard.functions[0].time: \"2h\" is not a duration from 1ns to 10ms"},
	{"- {function: nat", "ports: 8192", "ports: 8001", "chains.guard.functions[1].ports: 8001 is no multiple of 64"},
	{"cheap: › prefixes:", "10.2.0.0/16", "10.1.0.0/16", "chains.cheap.prefixes[0]: \"10.1.0.0/16\" is already that of chains.guard.prefixes[0]"},
}

// elsewhere are the lines that a mistake is told at, where that is not the edited one.
var elsewhere = map[string]string{
	"\"2001:db8:2::77\" is already that of nodes.lb2.lb":          "q1:",
	"\"5f00:0:1:77::/64\" is already that of nodes.lb3.locator":   "q3:",
	"dynamic.initial: 2 is above workers, 1":                      "dynamic:",
	"services.web.page: is missing, but required with load: page": "web: › vip:",
	"services.shop.history[0].version: 4 is not below 3":          "- version: 4",
}

// find is the number of a line from 0.
func find(t *testing.T, lines []string, line string) int {
	head, rest, two := strings.Cut(line, " › ")
	at, want := 0, head
	if two {
		at, want = find(t, lines, head)+1, rest
	}
	for i := at; i < len(lines); i++ {
		if strings.HasPrefix(strings.TrimSpace(lines[i]), want) {
			return i
		}
	}
	t.Fatalf("no line begins with %s", line)
	return 0
}

// files is how many are drawn: PROFFER_FILES, or a few.
func files(t *testing.T) int {
	text := os.Getenv("PROFFER_FILES")
	if text == "" {
		return 200
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestCatalogue: each mistake is told by itself; then five a file, drawn at random: all are named, each at its line.
func TestCatalogue(t *testing.T) {
	text := string(schematest.Read(t, "catalogue.yaml"))
	parsed(t, text)
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	for _, m := range catalogue {
		told(t, lines, []mistake{m})
	}
	random := rand.New(rand.NewPCG(1, 32))
	for n := range files(t) {
		var some []mistake
		used := map[int]bool{}
		for _, i := range random.Perm(len(catalogue)) {
			m := catalogue[i]
			if at := find(t, lines, m.line); !used[at] && len(some) < 5 && goWith(some, m) {
				used[at], some = true, append(some, m)
			}
		}
		if told(t, lines, some); t.Failed() {
			t.Fatalf("file %d", n)
		}
	}
}

// causes has for a line the mistakes that are none without what it says.
var causes = map[string]string{
	"web: › dispatch:": "which dispatch: hunt needs",
}

// goWith reports whether a mistake is one beside others.
func goWith(some []mistake, m mistake) bool {
	for _, o := range some {
		for line, effect := range causes {
			if o.line == line && strings.Contains(m.want, effect) || m.line == line && strings.Contains(o.want, effect) {
				return false
			}
		}
	}
	return true
}

// told makes the mistakes, and looks for each in the answer.
func told(t *testing.T, good []string, some []mistake) {
	t.Helper()
	lines := append([]string(nil), good...)
	for _, m := range some {
		at := find(t, good, m.line)
		if !strings.Contains(lines[at], m.was) {
			t.Fatalf("%q is not in %q", m.was, lines[at])
		}
		lines[at] = strings.Replace(lines[at], m.was, m.is, 1)
	}
	text := strings.Join(lines, "\n") + "\n"
	_, _, err := Parse("farm.yaml", []byte(text))
	if err == nil {
		t.Errorf("%v is accepted", some)
		return
	}
	schematest.Positioned(t, err, text)
	for _, m := range some {
		line := m.line
		for want, other := range elsewhere {
			if want == m.want {
				line = other
			}
		}
		where, named := fmt.Sprintf("farm.yaml:%d:", find(t, good, line)+1), false
		for said := range strings.SplitSeq(err.Error(), "\n") {
			named = named || strings.HasPrefix(said, where) && strings.Contains(said, m.want)
		}
		if !named {
			t.Errorf("%s %s is not told, of %v in\n%v", where, m.want, some, err)
		}
	}
}
