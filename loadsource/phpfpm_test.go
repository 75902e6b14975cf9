package loadsource

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"proffer/topo"
)

const fpmConf = `[global]
error_log = %[1]s/error.log
pid = %[1]s/pid
daemonize = no
[own]
user = daemon
group = daemon
listen = %[1]s/own.sock
pm = static
pm.max_children = 6
pm.status_path = /status
[apart]
user = daemon
group = daemon
listen = 127.0.0.1:%[2]s
pm = dynamic
pm.max_children = 6
pm.start_servers = 1
pm.min_spare_servers = 1
pm.max_spare_servers = 3
pm.status_path = /fpm/status
pm.status_listen = %[1]s/apart.status
[mute]
user = daemon
group = daemon
listen = %[1]s/mute.sock
pm = static
pm.max_children = 1
`

// fpm is the PHP-FPM that Debian has.
func fpm(t *testing.T) string {
	t.Helper()
	found, _ := filepath.Glob("/usr/sbin/php-fpm[0-9]*")
	if len(found) == 0 {
		t.Fatal("no php-fpm: .ci/tools installs it")
	}
	return found[0]
}

// TestPHPFPM: a pool of a real PHP-FPM has the requests that clients hold open, whether one of its
// processes or another answers, before and after it starts again; with an answerer of its own
// also those that wait for a process.
func TestPHPFPM(t *testing.T) {
	dir, tcp := folder(t), port(t)
	conf := write(t, dir, "fpm.conf", fmt.Sprintf(fpmConf, dir, tcp))
	h := newHolder(t)
	script := write(t, dir, "hold.php", fmt.Sprintf(`<?php file_get_contents("http://127.0.0.1:%s/");`, h.port()))
	for _, c := range []struct {
		from, of, pool string
		queue          bool
	}{
		{"unix:" + dir + "/own.sock", "/status", "unix:" + dir + "/own.sock", false},
		{"unix:" + dir + "/apart.status", "/fpm/status", "tcp:127.0.0.1:" + tcp, true},
	} {
		t.Run(c.of, func(t *testing.T) {
			s := open(t, topo.Offering{Source: topo.PHPFPM, From: c.from, Of: c.of})
			fails(t, s, "no such file or directory")
			cmd := run(t, fpm(t), "-n", "-y", conf)
			network, at, _ := strings.Cut(c.pool, ":")
			up(t, network, at)
			reads(t, s, 0)
			clients := &clients{T: t, holder: h, send: func() error {
				conn, err := dial(t.Context(), c.pool)
				if err != nil {
					return err
				}
				defer conn.Close()
				_, err = fastCGI(conn, script, "")
				return err
			}}
			clients.more(4, 4)
			reads(t, s, 4)
			clients.fewer(3)
			reads(t, s, 1)
			if c.queue {
				clients.more(8, 5) // of nine six have a process
				reads(t, s, 9)
				clients.fewer(8)
				clients.more(0, 3)
				reads(t, s, 1)
			}
			clients.fewer(1)
			clients.wait.Wait()
			reads(t, s, 0)
			if err := cmd.Process.Signal(unix.SIGUSR2); err != nil { // reload
				t.Fatal(err)
			}
			reads(t, s, 0)
			clients.more(2, 2)
			reads(t, s, 2)
			clients.fewer(2)
			reads(t, s, 0)
			if r, _ := s.Read(t.Context(), now()); r.Workers < 1 || r.Workers > 6 {
				t.Errorf("%d workers", r.Workers)
			}
			fails(t, open(t, topo.Offering{Source: topo.PHPFPM, From: c.pool, Of: "/none"}), "PHP-FPM answers 404 Not Found: is it the pool's pm.status_path?")
			fails(t, open(t, topo.Offering{Source: topo.PHPFPM, From: "unix:" + dir + "/mute.sock", Of: "/status"}), "PHP-FPM answers 404 Not Found")
		})
	}
}

// TestFullPool: a pool without an answerer of its own that is full does not answer.
func TestFullPool(t *testing.T) {
	dir := folder(t)
	conf := write(t, dir, "fpm.conf", fmt.Sprintf(fpmConf, dir, port(t)))
	h := newHolder(t)
	script := write(t, dir, "hold.php", fmt.Sprintf(`<?php file_get_contents("http://127.0.0.1:%s/");`, h.port()))
	run(t, fpm(t), "-n", "-y", conf)
	up(t, "unix", dir+"/own.sock")
	s := open(t, topo.Offering{Source: topo.PHPFPM, From: "unix:" + dir + "/own.sock", Of: "/status"})
	clients := &clients{T: t, holder: h, send: func() error {
		conn, err := dial(t.Context(), "unix:"+dir+"/own.sock")
		if err != nil {
			return err
		}
		defer conn.Close()
		_, err = fastCGI(conn, script, "")
		return err
	}}
	clients.more(6, 6)
	fails(t, s, "no answer within 250ms")
	clients.fewer(6)
	clients.wait.Wait()
	reads(t, s, 0)
}
