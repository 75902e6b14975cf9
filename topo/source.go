package topo

import (
	"slices"
	"strings"
)

// Source is the program that the measure `page` gets its number from.
type Source uint8

const (
	PageSource Source = iota
	Apache
	PHPFPM
	Nginx
	HAProxy
	Envoy
	Prometheus
)

// SourceRow is all that Go code asks of a source, but for reading it (loadsource).
type SourceRow struct {
	Name    string
	Meaning string // one line, the schema's

	File     bool     // reads the load page that Offering.Page names
	Programs []string // that report it, by the names of their files; none: any

	From    []string // how a value of load_from may begin; none: there is no load_from
	FromEG  string   // such values, in words
	Default string   // of load_from; empty: it must be given

	Of        string // the values of load_of, in words; empty: there is no load_of
	OfDefault string // empty: it must be given
	takes     func(of string) bool
}

// Takes reports whether a text can be the load_of of a source.
func (r SourceRow) Takes(of string) bool { return r.takes == nil || r.takes(of) }

var sources = [...]SourceRow{
	PageSource: {
		Name:    "page",
		Meaning: "the number on a page that a program writes",
		File:    true,
	},
	Apache: {
		Name:     "apache",
		Meaning:  "workers of Apache httpd with a request, from its scoreboard",
		Programs: []string{"apache2", "httpd"},
		From:     []string{"/"},
		FromEG:   "the absolute path of httpd's PID file such as /run/apache2/apache2.pid",
		Default:  "/run/apache2/apache2.pid",
	},
	PHPFPM: {
		Name:      "php-fpm",
		Meaning:   "active processes and the queue of a pool of PHP-FPM, from its status page",
		From:      []string{"unix:", "tcp:"},
		FromEG:    "the socket of the pool or of its pm.status_listen such as unix:/run/php/php8.2-fpm.sock or tcp:127.0.0.1:9000",
		Of:        "the pool's pm.status_path such as /status",
		OfDefault: "/status",
		takes:     func(of string) bool { return strings.HasPrefix(of, "/") },
	},
	Nginx: {
		Name:     "nginx",
		Meaning:  "requests that nginx reads or answers, from stub_status",
		Programs: []string{"nginx"},
		From:     []string{"http:", "https:"},
		FromEG:   "the address of stub_status such as http://127.0.0.1:8080/nginx_status",
	},
	HAProxy: {
		Name:     "haproxy",
		Meaning:  "sessions of a backend of HAProxy, its queue included",
		Programs: []string{"haproxy"},
		From:     []string{"unix:", "http:", "https:"},
		FromEG:   "HAProxy's stats socket such as unix:/run/haproxy/admin.sock, or its page such as http://127.0.0.1:8404/stats",
		Of:       "the name of a backend such as web",
	},
	Envoy: {
		Name:     "envoy",
		Meaning:  "active requests of a connection manager of Envoy",
		Programs: []string{"envoy"},
		From:     []string{"http:", "https:"},
		FromEG:   "the address of Envoy's admin interface such as http://127.0.0.1:9901",
		Of:       "the stat_prefix of an HTTP connection manager such as ingress_http",
	},
	Prometheus: {
		Name:    "prometheus",
		Meaning: "a metric of any exporter, the sum where it has several series",
		From:    []string{"http:", "https:"},
		FromEG:  "the address of the metrics such as http://127.0.0.1:9100/metrics",
		Of:      "the name of a gauge, with labels or without, such as requests_in_progress{app=\"web\"}",
		takes: func(of string) bool {
			_, err := ParseMetric(of)
			return err == nil
		},
	},
}

// Sources lists the sources.
func Sources() []Source { return listed[Source](len(sources)) }

func (s Source) Row() SourceRow { return sources[s] }
func (s Source) String() string { return sources[s].Name }

// Reads reports whether a source can be read from an address.
func (s Source) Reads(from string) bool {
	for _, prefix := range sources[s].From {
		if strings.HasPrefix(from, prefix) {
			return true
		}
	}
	return false
}

// SourceOf is the source that a program reports its load by.
func SourceOf(program string) (Source, bool) {
	for s, row := range sources {
		if slices.Contains(row.Programs, program) {
			return Source(s), true
		}
	}
	return 0, false
}

// Load is a value of the key `load`: a measure, or a source of the measure `page`.
type Load struct {
	Measure Measure
	Source  Source
}

// Loads lists them.
func Loads() (all []Load) {
	for _, m := range Measures() {
		if !m.Page() {
			all = append(all, Load{Measure: m})
			continue
		}
		for _, s := range Sources() {
			all = append(all, Load{m, s})
		}
	}
	return all
}

func (l Load) String() string {
	if l.Measure.Page() {
		return l.Source.String()
	}
	return l.Measure.String()
}

// Meaning is one line, the schema's.
func (l Load) Meaning() string {
	if l.Measure.Page() {
		return l.Source.Row().Meaning
	}
	return l.Measure.Row().Meaning
}

func (l Load) Sockets() bool { return l.Measure.Sockets() }

// File reports whether the load is on a load page, From and Of whether it has load_from and
// load_of, FromNeeded and OfNeeded whether these have no default.
func (l Load) File() bool       { return l.Measure.Page() && l.Source.Row().File }
func (l Load) From() bool       { return l.Measure.Page() && len(l.Source.Row().From) > 0 }
func (l Load) FromNeeded() bool { return l.From() && l.Source.Row().Default == "" }
func (l Load) Of() bool         { return l.Measure.Page() && l.Source.Row().Of != "" }
func (l Load) OfNeeded() bool   { return l.Of() && l.Source.Row().OfDefault == "" }
