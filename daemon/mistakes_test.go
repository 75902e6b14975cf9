package daemon

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestReloadOutsideDomain: a server with packets that would be dropped is refused at a reload
// as it is at a start.
func TestReloadOutsideDomain(t *testing.T) {
	m := newMachine(t, strings.Replace(lbFile, "domain: any", "domain: [5f00::/16]", 1))
	p := m.running(LB)
	m.change("{name: s2, locator: 5f00:0:2:2::/64}", "{name: s2, locator: 5f01:0:2:2::/64}")
	m.hangup()
	if line := m.logs("configuration not reloaded"); !strings.Contains(line, "lies outside node.domain (line 1), so this node's packets would be dropped") {
		t.Errorf("the log has %s", line)
	}
	m.wantReloads(0, 1)
	p.end()
}

// TestReloadOfEmptyPool: a pool may become empty, and the LB goes on.
func TestReloadOfEmptyPool(t *testing.T) {
	m := newMachine(t, lbFile)
	p := m.running(LB)
	m.change("servers: [{name: s1, locator: 5f00:0:2:1::/64}, {name: s2, locator: 5f00:0:2:2::/64}]", "servers: []")
	m.hangup()
	m.logs("configuration reloaded")
	if mode := m.status().Services[0].Mode; mode != "hunt, choices 2, 0 servers" {
		t.Errorf("status shows %q", mode)
	}
	p.end()
}

// TestKeyFiles: keys that every user of the host can read are refused, at the start and at a
// reload, and so are those of another server.
func TestKeyFiles(t *testing.T) {
	file := filepath.Join(t.TempDir(), "s1.keys")
	write := func(text string, mode os.FileMode) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(file, mode); err != nil {
			t.Fatal(err)
		}
	}
	ours, others := fmt.Sprintf(keys, 1), "locator: 5f00:0:2:7::/64\n"+fmt.Sprintf(keys, 1)
	m := newMachine(t, agentFile)
	m.change("signal_keys: none", "signal_keys: "+file)
	for _, c := range []struct {
		text string
		mode os.FileMode
		want string
	}{
		{ours, 0o644, "mode 0644 gives every user of this host the keys: `chmod 600 " + file + "`"},
		{ours, 0o602, "mode 0602 gives every user"},
		{others, 0o600, "s1.keys:1:10: locator: is of another server; want the file that `proffer keys server --locator 5f00:0:2:1::/64` makes"},
	} {
		write(c.text, c.mode)
		if err := m.start(Agent).exits(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("start: %v, want %s", err, c.want)
		}
	}
	write(ours, 0o600)
	if err := os.Chown(file, 1234, 0); err != nil {
		t.Fatal(err)
	}
	if err := m.start(Agent).exits(); err == nil || !strings.Contains(err.Error(), "it belongs to user 1234 and gives that user the keys: `chown 0 "+file+"`") {
		t.Errorf("start with the keys of another user: %v", err)
	}
	if err := os.Chown(file, 0, 0); err != nil {
		t.Fatal(err)
	}
	write(ours, 0o640)
	p := m.running(Agent)
	write(ours, 0o604)
	m.hangup()
	m.logs("mode 0604 gives every user")
	write(others, 0o600)
	m.hangup()
	m.logs("is of another server")
	p.end()
}

// TestOpenConfiguration: a configuration with a key that every user can read is advice until that is mended.
func TestOpenConfiguration(t *testing.T) {
	m := newMachine(t, lbFile)
	if err := os.Chmod(m.file, 0o644); err != nil {
		t.Fatal(err)
	}
	p := m.start(LB)
	advice := m.file + " has candidate_key: mode 0644 gives every user of this host the keys: `chmod 600 " + m.file + "`"
	m.logs(`level=WARN msg="a key lies open" advice="` + advice)
	m.logs("msg=ready")
	if got := m.status().Advice; !slices.Equal(got, []string{advice}) {
		t.Errorf("status has the advice %q", got)
	}
	if err := os.Chmod(m.file, 0o640); err != nil {
		t.Fatal(err)
	}
	if got := m.status().Advice; len(got) > 0 {
		t.Errorf("status has the advice %q, which was followed", got)
	}
	p.end()
	for _, d := range []struct {
		run       entry
		file, key string
	}{{Edge, edgeText, "flow_key"}, {NF, datapathText, "report_key"}} {
		m := newMachine(t, d.file)
		p := m.running(d.run)
		if err := os.Chmod(m.file, 0o606); err != nil {
			t.Fatal(err)
		}
		if got := m.status().Advice; len(got) != 1 || !strings.Contains(got[0], "has "+d.key+": mode 0606") {
			t.Errorf("it has the advice %q", got)
		}
		p.end()
	}
}

// TestBadTagsAreNamed: status names the senders of signals without a valid tag, a server by its
// name.
func TestBadTagsAreNamed(t *testing.T) {
	m := newMachine(t, lbFile)
	p := m.running(LB)
	if got, want := m.status().BadTags, []string{"5f00:0:2:2::/64 (server s2): 3 packets", "5f00:0:9:9::/64: 1 packets"}; !slices.Equal(got, want) {
		t.Errorf("status names %q, want %q", got, want)
	}
	p.end()
}

// TestAdvice: settings of the host that lose packets are in the log at the start and in
// status; an agent's VIPs are to be addresses of its host, and its answers leave by the link.
func TestAdvice(t *testing.T) {
	for _, c := range []struct {
		run        entry
		file, want string
	}{
		{LB, lbFile, "mend wan0 [] false"},
		{Agent, agentFile, "mend wan0 [2001:db8:f::1 2001:db8:f::2] true"},
		{Agent, strings.Replace(agentFile, "static:4, load", "static:4, owner: table, load", 1), "mend wan0 [2001:db8:f::1] true"},
	} {
		m := newMachine(t, c.file)
		m.advice = "mend"
		p := m.start(c.run)
		m.logs(`msg="a setting of this host loses packets" advice="` + c.want + `"`)
		m.logs("msg=ready")
		if got := m.status().Advice; !slices.Equal(got, []string{c.want}) {
			t.Errorf("status has %q, want %q", got, c.want)
		}
		p.end()
	}
}

// TestForgetful: a service that loses connections without an entry at the LB is named in the log, at the start
// and after a reload, and in status, until the file mends it. Status and the stop say how many they are now.
func TestForgetful(t *testing.T) {
	const lost = "service web: a connection that this LB has no entry of"
	m := newMachine(t, strings.Replace(lbFile, "dispatch: hunt", "dispatch: lsq\n    recovery: history", 1))
	p := m.start(LB)
	m.logs(`msg="a setting loses connections" advice="` + lost)
	m.logs("msg=ready")
	if got := m.status().Advice; len(got) != 1 || !strings.HasPrefix(got[0], lost) || !strings.HasSuffix(got[0], "set `recovery: agents`; connections that only this LB's table knows: 3") {
		t.Errorf("status has %q", got)
	}
	m.change("    recovery: history\n", "")
	m.hangup()
	m.logs(`msg="no longer: a setting loses connections" advice="` + lost)
	m.logs("configuration reloaded")
	if got := m.status().Advice; len(got) != 0 {
		t.Errorf("with agents that are asked, status has %q", got)
	}
	p.end()
	m = newMachine(t, strings.Replace(lbFile, "dispatch: hunt", "dispatch: lsq\n    recovery: history", 1))
	p = m.running(LB)
	p.stop()
	m.logs("service=web connections=3")
	p.wait()
}

// TestEdgeAdvice: settings of the host with which packets pass the functions by are in the log at the start
// and when they differ after a reload, and in status; that they cannot be read ends no daemon.
func TestEdgeAdvice(t *testing.T) {
	m := newMachine(t, edgeText)
	m.bypass = "mend"
	p := m.start(Edge)
	const warning = `msg="a setting of this host lets packets pass the functions by" advice=`
	m.logs(warning + `"mend c [10.1.0.0/16]"`)
	m.logs("msg=ready")
	if got := m.status().Advice; !slices.Equal(got, []string{"mend c [10.1.0.0/16]"}) {
		t.Errorf("status has %q", got)
	}
	m.change("10.1.0.0/16", "10.7.0.0/16")
	m.hangup()
	m.logs(warning + `"mend c [10.7.0.0/16]"`)
	m.logs(`level=INFO msg="no longer: a setting of this host lets packets pass the functions by" advice="mend c [10.1.0.0/16]"`)
	m.logs("configuration reloaded")
	m.hangup()
	for line := ""; !strings.Contains(line, "configuration reloaded"); {
		if line = m.logs(""); strings.Contains(line, "advice=") {
			t.Errorf("a reload that changes nothing says again: %s", line)
		}
	}
	p.end()
	m = newMachine(t, edgeText)
	m.fail("read rules")
	p = m.start(Edge)
	m.logs(warning + `"the host's forwarding cannot be checked: read rules is broken"`)
	m.logs("msg=ready")
	p.end()
}

// TestAdviceAfterReload: the VIPs are those of the services now.
func TestAdviceAfterReload(t *testing.T) {
	m := newMachine(t, agentFile)
	m.advice = "mend"
	p := m.running(Agent)
	m.change("vip: 2001:db8:f::1, ", "vip: 2001:db8:f::7, ")
	m.hangup()
	m.logs("configuration reloaded")
	if got, want := m.status().Advice, "mend wan0 [2001:db8:f::7 2001:db8:f::2] true"; !slices.Equal(got, []string{want}) {
		t.Errorf("status has %q, want %q", got, want)
	}
	p.end()
}
