package loadsource

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"proffer/topo"
)

const nginxConf = `daemon off;
worker_processes 2;
error_log %[1]s/error.log;
pid %[1]s/pid;
events {}
http {
	access_log off;
	client_body_temp_path %[1]s/1; proxy_temp_path %[1]s/2; fastcgi_temp_path %[1]s/3; uwsgi_temp_path %[1]s/4; scgi_temp_path %[1]s/5;
	server {
		listen 127.0.0.1:%[2]s;
		location / { proxy_pass http://127.0.0.1:%[3]s; }
		location /idle { return 204; }
	}
	server {
		listen 127.0.0.1:%[4]s;
		location = /status { stub_status; }
	}
}
`

// TestNginx: stub_status of a real nginx has the requests that clients hold open, not the one that
// asks, nor connections that are idle.
func TestNginx(t *testing.T) {
	dir, at, status := folder(t), port(t), port(t)
	h := newHolder(t)
	s := open(t, topo.Offering{Source: topo.Nginx, From: "http://127.0.0.1:" + status + "/status"})
	fails(t, s, "connection refused")
	run(t, "nginx", "-c", write(t, dir, "nginx.conf", fmt.Sprintf(nginxConf, dir, at, h.port(), status)))
	up(t, "tcp", "127.0.0.1:"+at)
	reads(t, s, 0)
	idle(t, "127.0.0.1:"+at, 10)
	c := &clients{T: t, holder: h, send: get("http://127.0.0.1:" + at)}
	c.more(12, 12)
	reads(t, s, 12)
	c.fewer(9)
	reads(t, s, 3)
	c.fewer(3)
	reads(t, s, 0)
	fails(t, open(t, topo.Offering{Source: topo.Nginx, From: "http://127.0.0.1:" + status + "/none"}), "/none answers 404 Not Found")
	fails(t, open(t, topo.Offering{Source: topo.Nginx, From: "http://127.0.0.1:" + at + "/idle"}), "answers 204")
}

const haproxyConf = `global
	stats socket %[1]s/admin.sock
defaults
	mode http
	timeout client 1m
	timeout server 1m
	timeout connect 1s
	timeout queue 1m
frontend web
	bind 127.0.0.1:%[2]s
	http-request return status 204 if { path /idle }
	default_backend web
backend web
	fullconn 99
	server s1 127.0.0.1:%[3]s maxconn 5
backend other
	server s1 127.0.0.1:%[3]s
listen stats
	bind 127.0.0.1:%[4]s
	stats enable
	stats uri /stats
	http-request use-service prometheus-exporter if { path /metrics }
`

// TestHAProxy: the statistics of a real HAProxy have the requests that clients hold open, with
// those in its queue, by the stats socket, by HTTP, and as a metric of its Prometheus exporter.
func TestHAProxy(t *testing.T) {
	dir, at, stats := folder(t), port(t), port(t)
	h := newHolder(t)
	sources := map[string]Source{
		"stats socket": open(t, topo.Offering{Source: topo.HAProxy, From: "unix:" + dir + "/admin.sock", Of: "web"}),
		"HTTP":         open(t, topo.Offering{Source: topo.HAProxy, From: "http://127.0.0.1:" + stats + "/stats", Of: "web"}),
		"Prometheus":   open(t, topo.Offering{Source: topo.Prometheus, From: "http://127.0.0.1:" + stats + "/metrics", Of: `haproxy_backend_current_sessions{proxy="web"}`}),
	}
	fails(t, sources["stats socket"], "no such file")
	run(t, "haproxy", "-f", write(t, dir, "haproxy.cfg", fmt.Sprintf(haproxyConf, dir, at, h.port(), stats)))
	up(t, "tcp", "127.0.0.1:"+at)
	all := func(want uint32) {
		t.Helper()
		for name, s := range sources {
			t.Log(name)
			reads(t, s, want)
		}
	}
	all(0)
	idle(t, "127.0.0.1:"+at, 10)
	all(0)
	c := &clients{T: t, holder: h, send: get("http://127.0.0.1:" + at)}
	c.more(8, 5) // three wait in the queue
	all(8)
	c.fewer(6)
	c.more(0, 3)
	all(2)
	c.fewer(2)
	all(0)
	for from, want := range map[string]string{"unix:" + dir + "/admin.sock": `HAProxy has no backend "none"`, "http://127.0.0.1:" + stats + "/stats": `HAProxy has no backend "none"`} {
		fails(t, open(t, topo.Offering{Source: topo.HAProxy, From: from, Of: "none"}), want)
	}
	metrics := "http://127.0.0.1:" + stats + "/metrics"
	for of, want := range map[string]string{
		"none":                              "the exporter has no metric none",
		`haproxy_backend_status{proxy="x"}`: "no series of the metric haproxy_backend_status has the labels",
		"haproxy_backend_sessions_total":    "the metric haproxy_backend_sessions_total is no gauge but a COUNTER",
	} {
		fails(t, open(t, topo.Offering{Source: topo.Prometheus, From: metrics, Of: of}), want)
	}
}

// envoyAnswer is the answer of Envoy 1.40.0 to the request of this source, with seven requests in
// progress.
const envoyAnswer = "http.ingress_http.downstream_rq_active: 7\n"

// TestEnvoy: the answer was recorded from a real Envoy, which Debian does not have.
func TestEnvoy(t *testing.T) {
	var asked string
	serve := serveText(t, func(r *http.Request) string {
		asked = r.URL.Path + "?" + r.URL.RawQuery
		if strings.Contains(r.URL.Query().Get("filter"), "ingress_http") {
			return envoyAnswer
		}
		return "" // as of Envoy
	})
	s := open(t, topo.Offering{Source: topo.Envoy, From: serve, Of: "ingress_http"})
	reads(t, s, 7)
	if want := `/stats?filter=%5Ehttp%5C.ingress_http%5C.downstream_rq_active%24`; asked != want {
		t.Errorf("asked for %s, want %s", asked, want)
	}
	fails(t, open(t, topo.Offering{Source: topo.Envoy, From: serve + "/", Of: "none"}), "no gauge http.none.downstream_rq_active at Envoy")
}
