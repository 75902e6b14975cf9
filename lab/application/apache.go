package application

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"path/filepath"

	"proffer/topo"
)

//go:embed source/work.php
var phpWork string

// apacheConf: %[3]s is the module of processes, and %[4]s the modules that serve requests.
const apacheConf = `ServerRoot %[1]s
PidFile %[1]s/httpd.pid
DefaultRuntimeDir %[1]s
DocumentRoot %[1]s
ErrorLog %[1]s/error.log
ServerName x
User daemon
Group daemon
Listen %[2]s
ListenBackLog 1024
LoadModule mpm_%[3]s_module ` + apacheModules + `mod_mpm_%[3]s.so
LoadModule authz_core_module ` + apacheModules + `mod_authz_core.so
KeepAlive On
KeepAliveTimeout 3600
MaxKeepAliveRequests 0
%[4]s
`

const apacheModules = "/usr/lib/apache2/modules/"

// withPHP: a process of prefork's has a connection for as long as that is open.
const withPHP = `LoadModule php_module %s
ServerLimit 1100
MaxRequestWorkers 1100
StartServers 1060
MinSpareServers 1
MaxSpareServers 1100
<FilesMatch "\.php$">
SetHandler application/x-httpd-php
</FilesMatch>
`

// asProxy: event gives a request to a server behind, or compresses a text.
const asProxy = `LoadModule proxy_module ` + apacheModules + `mod_proxy.so
LoadModule proxy_http_module ` + apacheModules + `mod_proxy_http.so
LoadModule deflate_module ` + apacheModules + `mod_deflate.so
LoadModule filter_module ` + apacheModules + `mod_filter.so
ServerLimit 4
ThreadsPerChild 32
MaxRequestWorkers 128
AsyncRequestWorkerFactor 20
DeflateCompressionLevel 9
SetOutputFilter DEFLATE
ProxyPass "/wait" "http://` + slowAt + `/"
`

func startApache(ctx context.Context, s *Site, module, more string) error {
	conf, err := s.write("httpd.conf", fmt.Sprintf(apacheConf, s.Dir, s.At, module, more))
	if err != nil {
		return err
	}
	if err := s.run("apache2", "-f", conf, "-D", "FOREGROUND"); err != nil {
		return err
	}
	return s.answersWeb(ctx, false)
}

// scoreboard is Apache's own word.
func scoreboard(s *Site) (*topo.Offering, error) {
	return &topo.Offering{Source: topo.Apache, From: filepath.Join(s.Dir, "httpd.pid")}, nil
}

// ofPHP is the path of a request at the script.
func ofPHP(r Request) string {
	if r == (Request{}) {
		return "/index.html"
	}
	return "/work.php" + asked(r)[len("/work"):]
}

// writePHP writes the script, and a file for requests for nothing.
func (s *Site) writePHP() error {
	if _, err := s.write("index.html", "ok"); err != nil {
		return err
	}
	_, err := s.write("work.php", phpWork)
	return err
}

func apachePrefork() *Program {
	php := Need{apacheModules + "libphp*.so", "libapache2-mod-php"}
	return &Program{
		Name: "apache-php", Needs: []Need{{"apache2", "apache2-bin"}, php}, Dial: dialWeb(false, ofPHP), Word: scoreboard,
		Start: func(ctx context.Context, s *Site) error {
			if err := s.writePHP(); err != nil {
				return err
			}
			return startApache(ctx, s, "prefork", fmt.Sprintf(withPHP, php.find()))
		},
	}
}

func apacheEvent() *Program {
	return &Program{
		Name: "apache-event", Needs: []Need{{"apache2", "apache2-bin"}}, Dial: dialWeb(false, nginxPath), Word: scoreboard,
		Start: func(ctx context.Context, s *Site) error {
			if err := s.behind(); err != nil {
				return err
			}
			if err := s.writeTexts(); err != nil {
				return err
			}
			return startApache(ctx, s, "event", asProxy)
		},
	}
}

// fpmConf: the pool's status has an answerer of its own, so that a full pool answers.
const fpmConf = `[global]
error_log = /dev/stderr
daemonize = no
[web]
user = daemon
group = daemon
listen = %[1]s/fpm.sock
listen.backlog = 512
pm = static
pm.max_children = 12
pm.status_path = /status
pm.status_listen = %[1]s/status.fpm
`

// phpFPM is nginx that gives PHP to PHP-FPM.
func phpFPM() *Program {
	fpm := Need{"/usr/sbin/php-fpm[0-9]*", "php-fpm"}
	return &Program{
		Name: "php-fpm", Needs: append([]Need{fpm}, nginxNeeds...), Dial: dialWeb(false, ofPHP),
		Word: func(s *Site) (*topo.Offering, error) {
			return &topo.Offering{Source: topo.PHPFPM, From: "unix:" + filepath.Join(s.Dir, "status.fpm"), Of: "/status"}, nil
		},
		Start: func(ctx context.Context, s *Site) error {
			if err := s.writePHP(); err != nil {
				return err
			}
			conf, err := s.write("fpm.conf", fmt.Sprintf(fpmConf, s.Dir))
			if err != nil {
				return err
			}
			if err := s.run(fpm.find(), "-n", "-y", conf); err != nil {
				return err
			}
			err = s.until(ctx, func() error {
				_, err := os.Stat(filepath.Join(s.Dir, "status.fpm"))
				return err
			})
			if err != nil {
				return err
			}
			pass := `location ~ \.php$ { include /etc/nginx/fastcgi_params; fastcgi_param SCRIPT_FILENAME %[1]s/work.php; fastcgi_pass unix:%[1]s/fpm.sock; }`
			return nginx(ctx, s, false, fmt.Sprintf(pass, s.Dir))
		},
	}
}
