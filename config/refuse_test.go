package config

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"proffer/topo"
)

var update = flag.Bool("update", false, "rewrite the expected errors in testdata")

// TestRefuses plays the cases of testdata/*.errors. A case is a title (#), the
// text it removes from the good file (-), its replacement (+), and
// the errors (=). Without a removal, the case is a whole file.
func TestRefuses(t *testing.T) {
	for _, file := range []string{"lb", "agent", "farm"} {
		good := string(read(t, file+".yaml"))
		path := "testdata/" + file + ".errors"
		var played []string
		for section := range strings.SplitSeq(strings.TrimSpace(string(read(t, file+".errors"))), "\n\n") {
			c := parseCase(section)
			c.got = refusal(t, file, c.apply(t, good))
			if c.got != c.want && !*update {
				t.Errorf("%s: %s\n got %s\nwant %s", path, c.title, c.got, c.want)
			}
			played = append(played, c.String())
		}
		if *update {
			if err := os.WriteFile(path, []byte(strings.Join(played, "\n\n")+"\n"), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// refusal is the error of parsing data, each of its parts with a position.
func refusal(t *testing.T, file, data string) string {
	t.Helper()
	err := parseOne(file, data)
	if err == nil {
		return "(accepted)"
	}
	var first *Error
	if !errors.As(err, &first) || first.Line < 1 || first.Column < 1 {
		t.Errorf("no position in %v", err)
	}
	return err.Error()
}

func parseOne(file, data string) (err error) {
	switch file {
	case "lb":
		_, err = ParseLB("lb.yaml", []byte(data))
	case "agent":
		_, err = ParseAgent("agent.yaml", []byte(data), cpus)
	default:
		_, err = ParseFarm("farm.yaml", []byte(data))
	}
	return err
}

type refusalCase struct{ title, remove, insert, want, got string }

func parseCase(section string) refusalCase {
	parts := map[byte][]string{}
	for line := range strings.SplitSeq(section, "\n") {
		parts[line[0]] = append(parts[line[0]], strings.TrimPrefix(line[1:], " "))
	}
	part := func(mark byte) string { return strings.Join(parts[mark], "\n") }
	return refusalCase{title: part('#'), remove: part('-'), insert: part('+'), want: part('=')}
}

func (c refusalCase) apply(t *testing.T, good string) string {
	if c.remove == "" {
		return c.insert
	}
	if strings.Count(good, c.remove) == 0 {
		t.Fatalf("%s: %q is not in the good file", c.title, c.remove)
	}
	return strings.Replace(good, c.remove, c.insert, 1)
}

func (c refusalCase) String() string {
	var b strings.Builder
	for _, part := range []struct{ mark, text string }{{"#", c.title}, {"-", c.remove}, {"+", c.insert}, {"=", c.got}} {
		if part.text == "" && part.mark != "=" {
			continue
		}
		for line := range strings.SplitSeq(part.text, "\n") {
			b.WriteString(strings.TrimRight(part.mark+" "+line, " ") + "\n")
		}
	}
	return strings.TrimSuffix(b.String(), "\n")
}

func TestRefusesTooMany(t *testing.T) {
	lb, err := ParseLB("lb.yaml", read(t, "lb.yaml"))
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
		{before: manyServers(MaxServers + 1), want: "services[0].history[0].servers: has 4097 elements; want a list of 1 to 4096 mappings"},
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
	wantRefusal(t, MarshalLB(lb), "services[0].servers: has 4097 elements; want a list of 1 to 4096 mappings")
	web.Servers, web.Version = manyServers(1), maxHistory+1
	for v := maxHistory; v >= 0; v-- {
		web.History = append(web.History, topo.Version{Version: v, Servers: manyServers(1)})
	}
	wantRefusal(t, MarshalLB(lb), "services[0].history: has 33 elements; want a list of 1 to 32 mappings")
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

// TestRefusesBombs holds files that grow when they are read: each must be
// refused by its size or shape, before the parser meets it.
func TestRefusesBombs(t *testing.T) {
	const deep, wide, many = "nested more than 64 deep", "more than 1024 keys in one mapping", "more than 524288 keys"
	for bomb, want := range map[string]string{
		strings.Repeat("[", 20_000):                                deep,
		strings.Repeat("{a: ", 20_000):                             deep,
		strings.Repeat("- ", 20_000):                               deep,
		strings.Repeat("? ", 20_000):                               deep,
		"a: " + strings.Repeat("&a ", 20_000):                      deep,
		"a: " + strings.Repeat("!a ", 20_000):                      deep,
		"a: &a [x]\nb: [" + strings.Repeat("*a,", 1000) + "]":      deep,
		strings.Repeat("---\n", 20_000):                            deep,
		strings.Repeat("a: b\n", 50_000):                           wide,
		"x:\n- - a: {b: c}\n" + strings.Repeat("    a: b\n", 1024): wide,
		"{" + strings.Repeat("a: b,", maxKeys+1) + "}":             many,
		strings.Repeat(" ", maxBytes+1):                            "the file has 12582913 bytes; want at most 12582912",
		"a: &a [x]\nb: &b [*a, *a]\nc: &c [*b, *b]\nd: [*c]\n":     "b: unknown key",
	} {
		if err := parseOne("lb", bomb); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.20q…: got %.200v\nwant %s", bomb, err, want)
		}
	}
}

// TestManyKeysAreNoBomb when they are those of many mappings.
func TestManyKeysAreNoBomb(t *testing.T) {
	for _, element := range []string{"- a: b\n  c: d\n", "-\n  a: b\n  c: {d: e}\n", "- - a: b\n    c: d\n"} {
		err := parseOne("lb", "services:\n"+strings.Repeat(element, 2*maxBlockKeys))
		if err == nil || !strings.Contains(err.Error(), "services: has 2048 elements") {
			t.Errorf("%q…: got %.200v", element, err)
		}
	}
}

func TestErrorsEnd(t *testing.T) {
	err := parseOne("lb", strings.Repeat("x: 1\n", 1000))
	lines := strings.Split(err.Error(), "\n")
	if len(lines) != maxErrors+1 || lines[maxErrors] != "lb.yaml: and 983 more errors" {
		t.Errorf("%d lines, last %q", len(lines), lines[len(lines)-1])
	}
}
