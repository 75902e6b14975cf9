package loadsource

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"

	"proffer/topo"
)

// phpFPM asks the status page of a pool. Where a process of the pool's own answers, it
// counts as active; with pm.status_listen another process does.
type phpFPM struct {
	from, path string
	began      int64 // the pool, when the asker was looked for; 0: not yet
	asker      int64 // active processes that are the asking itself: 1 or 0
}

func openPHPFPM(o *topo.Offering) (Source, error) {
	p := &phpFPM{from: o.From, path: o.Of}
	return answered{p.ask, p.parse, nil}, nil
}

// asks marks the agent's own request in the list of a pool's requests.
const asks = "proffer-asks"

// ask asks for all processes, too, as long as it is not known whether any of them answers.
func (p *phpFPM) ask(ctx context.Context) ([]byte, error) {
	conn, err := dial(ctx, p.from)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	query := "json"
	if p.began == 0 {
		query += "&full&" + asks
	}
	answer, err := fastCGI(conn, p.path, query)
	if err != nil {
		return nil, err
	}
	head, body, _ := strings.Cut(string(answer), "\r\n\r\n")
	if strings.HasPrefix(head, "Status: ") {
		status, _, _ := strings.Cut(head, "\r\n")
		return nil, errors.New("PHP-FPM answers " + status[len("Status: "):] + ": is it the pool's pm.status_path?")
	}
	return []byte(body), nil
}

// poolStatus is PHP-FPM's answer as JSON.
type poolStatus struct {
	Start     int64   `json:"start time"`
	Queue     *int64  `json:"listen queue"`
	Active    *int64  `json:"active processes"`
	Total     int64   `json:"total processes"`
	Processes *askers `json:"processes"`
}

// askers counts the processes that answer the agent. It reads one process after the other, as a pool
// may list any number.
type askers int64

func (a *askers) UnmarshalJSON(list []byte) error {
	d := json.NewDecoder(bytes.NewReader(list))
	if open, err := d.Token(); err != nil || open != json.Delim('[') {
		return err // null
	}
	for d.More() {
		var one struct {
			State string `json:"state"`
			URI   string `json:"request uri"`
		}
		if err := d.Decode(&one); err != nil {
			return err
		}
		if one.State == "Running" && strings.HasSuffix(one.URI, asks) {
			*a++
		}
	}
	return nil
}

func (p *phpFPM) parse(answer []byte) (Reading, error) {
	var s poolStatus
	if err := json.Unmarshal(answer, &s); err != nil || s.Queue == nil || s.Active == nil || *s.Queue < 0 || *s.Active < 0 {
		return Reading{}, errors.New("the answer is not PHP-FPM's status")
	}
	if s.Processes != nil {
		p.began, p.asker = s.Start, int64(min(*s.Processes, 1))
	} else if s.Start != p.began {
		p.began = 0 // another pool: look again
	}
	busy, err := count(float64(*s.Active) + float64(*s.Queue) - float64(min(*s.Active, p.asker)))
	if err != nil {
		return Reading{}, err
	}
	workers, err := count(float64(s.Total))
	return Reading{Busy: busy, Workers: workers}, err
}
