package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"proffer/cmd/internal/cli"
)

func TestSimSearch(t *testing.T) {
	args := []string{"sim", "--search", "servers", "--until", "mean<=0.4s", "--policies", "single,guided", "--rho", "0.71", "--seeds", "2", "--requests", "2000"}
	code, table, stderr := play(t, args...)
	if code != cli.OK || !strings.Contains(table, "the fewest servers with mean<=400 ms") {
		t.Fatalf("exit %d, %s\n%s", code, stderr, table)
	}
	_, stdout, _ := play(t, append(args, "--json")...)
	rows := parseRows(t, stdout)
	single, guided := rows[0]["servers"].(float64), rows[1]["servers"].(float64)
	if len(rows) != 2 || single <= guided || guided < 35 || rows[0]["servers_low"].(float64) > single {
		t.Errorf("single needs %v servers, guided %v:\n%s", single, guided, stdout)
	}
	_, lines, _ := play(t, append(args, "--csv")...)
	if strings.Count(lines, ",true\n") != 2 || !strings.HasPrefix(lines, "policy,farm,goal,servers,rho,ms,ci_ms,refused,fewest\n") {
		t.Errorf("lines\n%s", lines)
	}
}

func TestSimSearchRefused(t *testing.T) {
	for args, want := range map[string]string{
		"--search cores --until p99<=5":                       "--search cores: want servers\n",
		"--search servers":                                    "--search servers: --until is missing, such as --until 'p99<=500'\n",
		"--until p99<=5":                                      "--until p99<=5: goes with --search servers\n",
		"--search servers --until p99=5":                      `--until "p99=5": want a mean or percentile and the most it may be, such as mean<=200, p99<=500 (ms) or p99.9<=1.5s` + "\n",
		"--search servers --until p99<=5 --rho 0.5,0.6":       "--search servers: want one --rho, the load of the farm as it is; got 2\n",
		"--search servers --until p99<=5 --groups":            "--search servers: goes without --groups\n",
		"--search servers --until p99<=5 --seeds 1":           "--search servers: a search needs 2 seeds at least: one has no interval\n",
		"--search servers --until p99<=5 --policies guided:9": "--policies: policy \"guided:9\": ",
	} {
		wantLine(t, append([]string{"sim"}, strings.Split(args, " ")...), cli.Usage, want)
	}
}

// TestSimInterruptedInsideARun: Ctrl-C ends it long before its 40 million requests are simulated, without a
// partial file.
func TestSimInterruptedInsideARun(t *testing.T) {
	for name, more := range map[string][]string{
		"rows":   {"--cdf", "cdf.csv", "--percentiles", "99.9"},
		"search": {"--search", "servers", "--until", "p99<=500"},
	} {
		dir := t.TempDir()
		t.Chdir(dir)
		ctx, cancel := context.WithCancel(t.Context())
		var begun time.Time
		time.AfterFunc(300*time.Millisecond, func() { begun = time.Now(); cancel() })
		var out, errOut bytes.Buffer
		code := cli.Run(ctx, newRoot(), append([]string{"sim", "--policies", "single", "--requests", "20000000", "--seeds", "2"}, more...), &out, &errOut)
		if took := time.Since(begun); code != cli.Failed || took > 2*time.Minute || !strings.Contains(errOut.String(), "interrupted: ") {
			t.Errorf("%s: exit %d, %v after the interrupt, %s", name, code, took, errOut.String())
		}
		if left, err := os.ReadDir(filepath.Join(dir)); err != nil || len(left) > 0 {
			t.Errorf("%s: left %v (%v)", name, left, err)
		}
	}
}
