package apache

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"

	"proffer/lab/farmrun"
	"proffer/lab/testbed"
	"proffer/lab/traffic/responder"
	"proffer/loadsource"
	"proffer/topo"
)

// httpdConf is SRLB §IV-C: prefork, 32 workers, a backlog of 128.
const httpdConf = `ServerRoot %[1]s
PidFile %[1]s/httpd.pid
DefaultRuntimeDir %[1]s
DocumentRoot %[1]s
ErrorLog %[1]s/error.log
ServerName x
User daemon
Group daemon
Listen [%[2]s]:%[3]d
ListenBacklog %[4]d
LoadModule mpm_prefork_module %[5]s/mod_mpm_prefork.so
LoadModule authz_core_module %[5]s/mod_authz_core.so
LoadModule dir_module %[5]s/mod_dir.so
LoadModule php_module %[6]s
StartServers %[7]d
MinSpareServers 1
MaxSpareServers %[7]d
ServerLimit %[7]d
MaxRequestWorkers %[7]d
KeepAlive Off
ExtendedStatus On
DirectoryIndex index.php
<FilesMatch "\.php$">
SetHandler application/x-httpd-php
</FilesMatch>
`

// busyLoop runs until its process has had as much CPU time as the URL asks for: the same
// arrivals and sizes for every policy, however fast the machine is at that moment.
const busyLoop = `<?php
function used() {
    $u = getrusage();
    return ($u['ru_utime.tv_sec'] + $u['ru_stime.tv_sec']) * 1e6 + $u['ru_utime.tv_usec'] + $u['ru_stime.tv_usec'];
}
$end = used();
if (!preg_match('/^([0-9.]+)(ns|µs|ms|s)$/', rawurldecode($_GET['service'] ?? ''), $m)) {
    http_response_code(400);
    exit;
}
$end += $m[1] * ['ns' => 1e-3, 'µs' => 1, 'ms' => 1e3, 's' => 1e6][$m[2]];
header('%s: %s');
header('%s: ' . $_SERVER['HTTP_X_PROFFER_ID']);
do {
    for ($i = 0; $i < 500; $i++);
} while (used() < $end);
`

const httpdModules = "/usr/lib/apache2/modules"

// httpds are Apache httpd on every server node, each in a control group.
type httpds struct {
	nodes     []*testbed.Node
	processes []*testbed.Process
	quotas    []*testbed.Quota
	boards    []loadsource.Source
}

// httpdPrograms finds Apache and PHP; the error names the package that is missing.
func httpdPrograms() (program, php string, err error) {
	program, err = exec.LookPath("apache2")
	if err != nil {
		program, err = exec.LookPath("/usr/sbin/apache2")
	}
	if err != nil || !readable(filepath.Join(httpdModules, "mod_mpm_prefork.so")) {
		return "", "", errors.New("the experiment needs Apache httpd, and this machine has none: apt-get install apache2-bin")
	}
	found, _ := filepath.Glob(filepath.Join(httpdModules, "libphp*.so")) // the pattern is well-formed
	if len(found) == 0 {
		return "", "", fmt.Errorf("the experiment needs PHP inside Apache httpd, and %s has no libphp*.so: apt-get install libapache2-mod-php", httpdModules)
	}
	return program, found[len(found)-1], nil
}

func readable(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// serveHTTPD starts them, without a quota, and returns when all their workers wait.
// Server i listens at the VIP on port(i).
func serveHTTPD(ctx context.Context, bed *testbed.Bed, workers int, port func(i int) uint16) (*httpds, error) {
	program, php, err := httpdPrograms()
	if err != nil {
		return nil, err
	}
	h := &httpds{nodes: bed.Servers}
	for i, n := range bed.Servers {
		err := n.Do(func() error {
			return os.WriteFile("/proc/sys/net/ipv4/tcp_abort_on_overflow", []byte("1"), 0)
		})
		if err == nil {
			err = h.launch(bed, n, program, fmt.Sprintf(httpdConf, httpdFolder(bed, n), bed.VIP, port(i), farmrun.Backlog, httpdModules, php, workers))
		}
		if err != nil {
			return nil, errors.Join(err, h.Close())
		}
	}
	var group errgroup.Group
	for i := range h.nodes {
		group.Go(func() error { return h.ready(ctx, i, workers) })
	}
	if err := group.Wait(); err != nil {
		return nil, errors.Join(err, h.Close())
	}
	return h, nil
}

func httpdFolder(bed *testbed.Bed, n *testbed.Node) string {
	return filepath.Join(bed.Dir, "httpd-"+n.Name)
}

// pidFile is where an httpd has its process number: the agent finds the scoreboard by it.
func pidFile(bed *testbed.Bed, n *testbed.Node) string {
	return filepath.Join(httpdFolder(bed, n), "httpd.pid")
}

func (h *httpds) launch(bed *testbed.Bed, n *testbed.Node, program, conf string) error {
	dir := httpdFolder(bed, n)
	script := fmt.Sprintf(busyLoop, responder.HeaderServer, n.Name, responder.HeaderID)
	err := errors.Join(
		os.MkdirAll(dir, 0o755),
		os.WriteFile(filepath.Join(dir, "httpd.conf"), []byte(conf), 0o644),
		os.WriteFile(filepath.Join(dir, "index.php"), []byte(script), 0o644))
	if err != nil {
		return fmt.Errorf("configure httpd on %s: %w", n.Name, err)
	}
	quota, err := n.Quota()
	if err != nil {
		return err
	}
	p, err := n.StartCommand(quota.Command(program, "-f", filepath.Join(dir, "httpd.conf"), "-D", "FOREGROUND"))
	if err != nil {
		return err
	}
	board, err := loadsource.Open(&topo.Offering{Measure: topo.Page, Source: topo.Apache, From: pidFile(bed, n)})
	if err != nil {
		return errors.Join(err, p.Stop())
	}
	h.processes, h.quotas, h.boards = append(h.processes, p), append(h.quotas, quota), append(h.boards, board)
	return nil
}

// ready waits for the workers of server i.
func (h *httpds) ready(ctx context.Context, i, workers int) error {
	ctx, cancel := context.WithTimeout(ctx, farmrun.ReadyWithin)
	defer cancel()
	for {
		r, err := h.boards[i].Read(ctx, 0)
		if err == nil && int(r.Workers) == workers && r.Busy == 0 {
			return nil
		}
		select {
		case <-h.processes[i].Done():
			return fmt.Errorf("httpd on %s ended: %s", h.nodes[i].Name, h.processes[i].Log())
		case <-ctx.Done():
			return fmt.Errorf("httpd on %s has %d of %d workers: %w: %s", h.nodes[i].Name, r.Workers, workers, errors.Join(ctx.Err(), err), h.processes[i].Log())
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// limit gives each server its share of a core.
func (h *httpds) limit(share float64, period time.Duration) error {
	for _, q := range h.quotas {
		if err := q.Set(share, period); err != nil {
			return err
		}
	}
	return nil
}

// used is the CPU time that each server has had.
func (h *httpds) used() ([]time.Duration, error) {
	all := make([]time.Duration, len(h.quotas))
	for i, q := range h.quotas {
		var err error
		if all[i], err = q.Used(); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// busy are the workers with a request, by the scoreboards; 0 of a server that cannot say.
func (h *httpds) Busy() []float64 {
	busy := make([]float64, len(h.boards))
	for i, board := range h.boards {
		if r, err := board.Read(context.Background(), 0); err == nil {
			busy[i] = float64(r.Busy)
		}
	}
	return busy
}

// Close ends all servers.
func (h *httpds) Close() error {
	var group errgroup.Group
	for i := range h.processes {
		group.Go(func() error { return errors.Join(h.processes[i].Stop(), h.boards[i].Close()) })
	}
	return group.Wait()
}
