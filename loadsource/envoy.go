package loadsource

import (
	"bytes"
	"fmt"
	"net/url"
	"regexp"
	"strconv"
	"strings"

	"proffer/topo"
)

// openEnvoy asks Envoy's admin interface for a single gauge (/stats of "Administration interface").
func openEnvoy(o *topo.Offering) (Source, error) {
	name := "http." + o.Of + ".downstream_rq_active"
	query := url.Values{"filter": {"^" + regexp.QuoteMeta(name) + "$"}}
	ask, release := overHTTP(strings.TrimSuffix(o.From, "/") + "/stats?" + query.Encode())
	return answered{ask, func(answer []byte) (Reading, error) { return parseEnvoy(answer, name) }, release}, nil
}

// parseEnvoy finds the line "NAME: COUNT".
func parseEnvoy(answer []byte, name string) (Reading, error) {
	for line := range bytes.Lines(answer) {
		value, ok := strings.CutPrefix(strings.TrimRight(string(line), "\r\n"), name+": ")
		if !ok {
			continue
		}
		n, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return Reading{}, errNoCount
		}
		busy, err := count(n)
		return Reading{Busy: busy}, err
	}
	return Reading{}, fmt.Errorf("no gauge %s at Envoy", name)
}
