package peers

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"proffer/lab/farmrun"
	"proffer/lab/testbed"
)

// The proxies' configuration: the VIP, then all servers. Beyond that they have
// their defaults; HAProxy has none for its timeouts.
const (
	haproxyConf = `global
	nbthread 1
	maxconn 4096
defaults
	mode tcp
	timeout connect 5s
	timeout client 1m
	timeout server 1m
frontend web
	bind [%s]:80
	default_backend farm
backend farm
	balance leastconn
%s`
	haproxyServer = "\tserver %s [%s]:80\n"

	nginxConf = `load_module ` + streamModule + `;
daemon off;
master_process off;
pid nginx.pid;
events { worker_connections 16384; }
stream {
	server {
		listen [%s]:80 backlog=4096;
		proxy_pass farm;
	}
	upstream farm {
		least_conn;
%s	}
}
`
	nginxServer = "\t\t# %s\n\t\tserver [%s]:80;\n"
)

// serverConf is the HTTP server's on each server: its folder, where bulkFile is,
// and its name.
const serverConf = `daemon off;
master_process off;
pid nginx.pid;
events { worker_connections 16384; }
http {
	access_log off;
	sendfile on;
	tcp_nopush on;
	keepalive_requests 1000000000;
	client_max_body_size 0;
	client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi;
	uwsgi_temp_path uwsgi; scgi_temp_path scgi;
	server {
		listen [::]:80 backlog=4096;
		root %s;
		location / {
			add_header X-Proffer-Server %s;
			add_header X-Proffer-Id $http_x_proffer_id;
			return 200 "hello\n";
		}
		location = /` + bulkFile + ` { }
	}
}
`

// bulkFile is the file of downloads, requested again and again.
const (
	bulkFile  = "bulk"
	bulkBytes = 8 << 20
)

// write writes a file into the bed's folder, which disappears with it.
func (c *contest) write(name, text string) (string, error) {
	path := filepath.Join(c.bed.Dir, name)
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		return path, fmt.Errorf("configure: %w", err)
	}
	return path, nil
}

// serve runs the HTTP servers; they end with the bed.
func (c *contest) serve(ctx context.Context) error {
	if _, err := c.write(bulkFile, string(make([]byte, bulkBytes))); err != nil {
		return err
	}
	for _, n := range c.bed.Servers {
		path, err := c.write(n.Name+"-nginx.conf", fmt.Sprintf(serverConf, c.bed.Dir, n.Name))
		if err != nil {
			return err
		}
		folder := filepath.Join(c.bed.Dir, n.Name+"-nginx")
		if err := os.Mkdir(folder, 0o755); err != nil {
			return fmt.Errorf("configure nginx on %s: %w", n.Name, err)
		}
		p, err := n.Start(ctx, "nginx", "-e", "stderr", "-p", folder, "-c", path)
		if err != nil {
			return err
		}
		c.servers = append(c.servers, p.Pid())
		if err := c.answers(ctx, n.Addr, p); err != nil {
			return err
		}
	}
	return nil
}

// answers returns once the client has had an answer from there, or one of the
// processes that it takes has ended.
func (c *contest) answers(ctx context.Context, from netip.Addr, by ...*testbed.Process) error {
	ctx, cancel := context.WithTimeout(ctx, farmrun.ReadyWithin)
	defer cancel()
	client := http.Client{Transport: &http.Transport{DialContext: c.bed.Client.DialContext, DisableKeepAlives: true}, Timeout: time.Second}
	for {
		why := get(ctx, &client, urlOf(from, "/"))
		if why == nil {
			return nil
		}
		for _, p := range by {
			select {
			case <-p.Done():
				return fmt.Errorf("%s ended: %s", p.Name, p.Log())
			default:
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("no answer from %s: %w: %w", from, ctx.Err(), why)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func get(ctx context.Context, client *http.Client, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	answer, err := client.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("GET %s: %s", url, answer.Status)
	}
	_, err = io.Copy(io.Discard, answer.Body)
	return err
}
