package application

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"

	"proffer/topo"
)

// nginxConf: a request waits for another server, or has a text compressed, as %[4]s has it, which is
// the rest of a server's settings.
const nginxConf = `daemon off; user root; pid %[1]s/pid; error_log stderr error; worker_processes 2;
events { worker_connections 4096; }
http {
	access_log off; keepalive_timeout 1h; keepalive_requests 1000000000;
	client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path f; uwsgi_temp_path u; scgi_temp_path s;
	gzip_types text/plain; gzip_comp_level 9; gzip_min_length 1000;
	server {
		listen %[2]s backlog=1024 %[3]s;
		root %[1]s;
		location = /wait { proxy_pass http://` + slowAt + `; }
		%[4]s
	}
	server { listen unix:%[1]s/status.sock; location / { stub_status; } }
}
`

// compressed has nginx compress a text itself, and compressedBehind another nginx: of streams on one
// connection nginx reads the next when it has compressed that before.
const (
	compressed       = "location /text { gzip on; default_type text/plain; }"
	compressedBehind = "location /text { proxy_pass http://unix:%s/text.sock; proxy_http_version 1.1; proxy_set_header Accept-Encoding gzip; }"
)

// compressorConf is that of the nginx behind. It answers when a text is compressed as a whole.
const compressorConf = `daemon off; user root; pid %[1]s/behind.pid; error_log stderr error; worker_processes 2;
events {}
http {
	access_log off; gzip_types text/plain; gzip_comp_level 9; gzip_min_length 1000; gzip_buffers 4 128k;
	client_body_temp_path body2; proxy_temp_path proxy2; fastcgi_temp_path f2; uwsgi_temp_path u2; scgi_temp_path s2;
	server { listen unix:%[1]s/text.sock; root %[1]s; ` + compressed + ` }
}
`

// compressor starts it.
func (s *Site) compressor() error {
	conf, err := s.write("behind.conf", fmt.Sprintf(compressorConf, s.Dir))
	if err != nil {
		return err
	}
	return s.run("nginx", "-e", "stderr", "-p", s.Dir, "-c", conf)
}

var nginxNeeds = []Need{{"nginx", "nginx-light"}}

// texts are the files that nginx compresses. Each takes about twice as long as that before.
const texts = 3

// nginx starts nginx.
func nginx(ctx context.Context, s *Site, secure bool, more string) error {
	tls := ""
	if secure {
		cert, key, err := s.certify()
		if err != nil {
			return err
		}
		tls = "ssl http2"
		more += fmt.Sprintf("ssl_protocols TLSv1.3; ssl_certificate %s; ssl_certificate_key %s;", cert, key)
	}
	if err := s.writeTexts(); err != nil {
		return err
	}
	conf, err := s.write("nginx.conf", fmt.Sprintf(nginxConf, s.Dir, s.At, tls, more))
	if err != nil {
		return err
	}
	if err := s.run("nginx", "-e", "stderr", "-p", s.Dir, "-c", conf); err != nil {
		return err
	}
	return s.answersWeb(ctx, secure)
}

func (s *Site) writeTexts() error {
	for i := range texts {
		if _, err := s.write(fmt.Sprintf("text%d", i), words(40_000<<i)); err != nil {
			return err
		}
	}
	_, err := s.write("index.html", "ok")
	return err
}

// words are some text that takes a while to compress.
func words(bytes int) string {
	random := rand.New(rand.NewPCG(1, 0))
	var text strings.Builder
	for text.Len() < bytes {
		fmt.Fprintf(&text, "%d ", random.Uint32N(1<<16))
	}
	return text.String()
}

func nginxPath(r Request) string {
	switch {
	case r.CPU > 0:
		return fmt.Sprintf("/text%d", rand.IntN(texts))
	case r.Wait > 0:
		return fmt.Sprintf("/wait?wait=%d", r.Wait.Microseconds())
	default:
		return "/index.html"
	}
}

// stubStatus is nginx's own word.
func stubStatus(s *Site) (*topo.Offering, error) {
	at, err := s.relay("status.sock")
	return &topo.Offering{Source: topo.Nginx, From: "http://" + at}, err
}

func nginxPlain() *Program {
	return &Program{
		Name: "nginx-h1", Needs: nginxNeeds, Dial: dialWeb(false, nginxPath), Word: stubStatus,
		Start: func(ctx context.Context, s *Site) error {
			if err := s.behind(); err != nil {
				return err
			}
			return nginx(ctx, s, false, compressed)
		},
	}
}

const oneByOne = "nginx reads a stream when it has compressed the one before, and knows of none that waits"

func nginxSecure() *Program {
	return &Program{
		Name: "nginx-h2", Needs: nginxNeeds, Dial: dialWeb(true, nginxPath), Share: 4, Word: stubStatus,
		Exceptions: excepting(oneByOne, CPU, Mixed), Cure: "nginx-h2-proxy",
		Start: func(ctx context.Context, s *Site) error {
			if err := s.behind(); err != nil {
				return err
			}
			return nginx(ctx, s, true, compressed)
		},
	}
}

// nginxProxy has another server compress, and only gives streams on.
func nginxProxy() *Program {
	return &Program{
		Name: "nginx-h2-proxy", Needs: nginxNeeds, Dial: dialWeb(true, nginxPath), Share: 4, Word: stubStatus,
		Start: func(ctx context.Context, s *Site) error {
			if err := s.behind(); err != nil {
				return err
			}
			if err := s.compressor(); err != nil {
				return err
			}
			return nginx(ctx, s, true, fmt.Sprintf(compressedBehind, s.Dir))
		},
	}
}
