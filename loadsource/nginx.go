package loadsource

import (
	"fmt"
	"regexp"
	"strconv"

	"proffer/topo"
)

func openNginx(o *topo.Offering) (Source, error) {
	ask, release := overHTTP(o.From)
	return answered{ask, parseNginx, release}, nil
}

// stubStatus is the last line of nginx's stub_status (ngx_http_stub_status_module).
var stubStatus = regexp.MustCompile(`^Active connections: \d{1,18} \nserver accepts handled requests\n \d{1,18} \d{1,18} \d{1,18} \nReading: (\d{1,9}) Writing: (\d{1,9}) Waiting: \d{1,9} \n$`)

// parseNginx counts the requests that are read or answered, less that which asks.
func parseNginx(answer []byte) (Reading, error) {
	found := stubStatus.FindSubmatch(answer)
	if found == nil {
		return Reading{}, fmt.Errorf("the answer is not that of stub_status")
	}
	reading, _ := strconv.ParseUint(string(found[1]), 10, 32) // nine digits
	writing, _ := strconv.ParseUint(string(found[2]), 10, 32)
	busy, err := count(float64(reading + writing - min(writing, 1)))
	return Reading{Busy: busy}, err
}
