package history

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"slices"
	"time"

	"proffer/ownfile"
	"proffer/topo"
)

// format is the version of the file's layout.
const format = 1

// The file's JSON; behind it stands sumOf, which versions without it do not read.
type (
	fileJSON struct {
		Format   int           `json:"format"`
		Of       string        `json:"of,omitempty"` // the LB and its farm; a record of an earlier version names none
		Services []serviceJSON `json:"services"`
	}
	serviceJSON struct {
		VIP      netip.Addr `json:"vip"`
		Port     uint16     `json:"port"`
		Protocol uint8      `json:"protocol"` // IANA's number
		Pool     poolJSON   `json:"pool"`
		Past     []poolJSON `json:"past,omitempty"` // the newest first
	}
	poolJSON struct {
		Version int          `json:"version"`
		Until   *time.Time   `json:"until,omitempty"`
		Servers []serverJSON `json:"servers"`
	}
	serverJSON struct {
		Name     string       `json:"name"`
		Delivery string       `json:"delivery,omitempty"` // none: by an agent
		Locator  netip.Prefix `json:"locator,omitzero"`
		Address  netip.Addr   `json:"address,omitzero"`
		VNI      int          `json:"vni,omitempty"`
		MAC      topo.MAC     `json:"mac,omitzero"`
		Weight   int          `json:"weight"`
	}
)

// Corrupt is a file that was no record, and where it lies now, or why it is not moved aside.
type Corrupt struct {
	Path, Moved string
	Err, Stays  error
}

func (c *Corrupt) Error() string {
	if c.Stays != nil {
		return fmt.Sprintf("%s is no record of pools (%v), and is replaced by the next: %v", c.Path, c.Err, c.Stays)
	}
	return fmt.Sprintf("%s is no record of pools (%v); it is %s now", c.Path, c.Err, c.Moved)
}

func (c *Corrupt) Unwrap() error { return c.Err }

// Read reads the record at path; without a file there it is empty. A file that is no record
// is moved aside, and the error is a *Corrupt beside an empty record; after any other error
// there is no record.
func Read(path string, at Moment) (*Record, error) {
	data, err := ownfile.ReadRegular(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return &Record{}, nil
	case err != nil:
		return nil, fmt.Errorf("read the record of pools: %w: let the daemon read it, or name another file in `state`", err)
	}
	r, err := parse(data, at)
	if err == nil {
		return r, nil
	}
	moved := path + ".corrupt"
	for i := 2; exists(moved); i++ {
		moved = fmt.Sprintf("%s.corrupt-%d", path, i)
	}
	return &Record{}, &Corrupt{path, moved, err, os.Rename(path, moved)}
}

// Load is Read without a change of any file.
func Load(path string) (*Record, error) {
	data, err := ownfile.ReadRegular(path)
	if err != nil {
		return nil, fmt.Errorf("read the record of pools: %w", err)
	}
	r, err := parse(data, Moment{})
	if err != nil {
		return nil, fmt.Errorf("%s is no record of pools: %w", path, err)
	}
	return r, nil
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

func parse(data []byte, at Moment) (*Record, error) {
	var f fileJSON
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&f); err != nil {
		return nil, err
	}
	if f.Format != format {
		return nil, fmt.Errorf("format %d, not %d", f.Format, format)
	}
	if err := checkSum(data, d.InputOffset()); err != nil {
		return nil, err
	}
	r := &Record{of: f.Of, services: map[topo.VIP]served{}}
	for _, s := range f.Services {
		vip, err := s.vip()
		if err != nil {
			return nil, err
		}
		if _, known := r.services[vip]; known {
			return nil, fmt.Errorf("%s stands there twice", vip)
		}
		now, err := s.Pool.version()
		if err != nil {
			return nil, err
		}
		is := served{now: now}
		for _, p := range s.Past {
			if p.Until == nil {
				return nil, fmt.Errorf("version %d of %s has no end", p.Version, vip)
			}
			v, err := p.version()
			if err != nil {
				return nil, err
			}
			age := max(at.Wall.Sub(*p.Until), 0) // the clock may have been set back
			is.past = append(is.past, past{v, *p.Until, at.Steady - age})
		}
		r.services[vip] = is
	}
	return r, nil
}

// checkSum compares the sum that follows the record in data with that of the bytes before it. A record
// of a version before the sum ends with its own newline.
func checkSum(data []byte, end int64) error {
	body, rest := data[:end], data[end:]
	if string(rest) == "\n" || len(rest) == 0 {
		return nil
	}
	if string(rest) != string(sumOf(body)) {
		return errors.New("its checksum is not that of its content")
	}
	return nil
}

// sumOf is the text behind a record: the checksum of the bytes before.
func sumOf(body []byte) []byte {
	return fmt.Appendf(nil, "\n{\"sha256\":\"%x\"}\n", sha256.Sum256(body))
}

// vip is the service of a record.
func (s *serviceJSON) vip() (topo.VIP, error) {
	vip := topo.VIP{Addr: s.VIP, Port: s.Port}
	switch s.Protocol {
	case topo.TCP.Number():
	case topo.UDP.Number():
		vip.Protocol = topo.UDP
	default:
		return vip, fmt.Errorf("%s has protocol %d, want 6 or 17", vip, s.Protocol)
	}
	if !vip.Addr.IsValid() || vip.Port == 0 || len(s.Past) > Most {
		return vip, fmt.Errorf("a service has VIP %s, port %d and %d earlier pools; want an address, a port and at most %d", s.VIP, s.Port, len(s.Past), Most)
	}
	return vip, nil
}

// mostWeight is the largest weight of a server.
const mostWeight = 65535

func (p poolJSON) version() (topo.Version, error) {
	v := topo.Version{Version: p.Version}
	if p.Version < 0 {
		return v, fmt.Errorf("a pool has version %d, want 0 or more", p.Version)
	}
	for _, s := range p.Servers {
		if s.Weight < 0 || s.Weight > mostWeight {
			return v, fmt.Errorf("server %s has weight %d, want 0 to %d", s.Name, s.Weight, mostWeight)
		}
		server := topo.Server{Name: s.Name, Locator: s.Locator, Address: s.Address, VNI: s.VNI, MAC: s.MAC, Weight: s.Weight}
		i := slices.IndexFunc(topo.Deliveries(), func(d topo.Delivery) bool { return d.String() == s.Delivery })
		if s.Delivery != "" && i < 0 {
			return v, fmt.Errorf("server %s has delivery %q, which this version does not know", s.Name, s.Delivery)
		}
		server.Delivery = topo.Delivery(max(i, 0))
		if !server.At().IsValid() {
			return v, fmt.Errorf("server %s has neither locator nor address", s.Name)
		}
		v.Servers = append(v.Servers, server)
	}
	return v, nil
}

func (r *Record) file(of string) fileJSON {
	f := fileJSON{Format: format, Of: of, Services: []serviceJSON{}}
	for _, vip := range r.sorted() {
		s := r.services[vip]
		j := serviceJSON{VIP: vip.Addr, Port: vip.Port, Protocol: vip.Protocol.Number(), Pool: poolOf(s.now)}
		for _, p := range s.past {
			pool := poolOf(p.Version)
			pool.Until = &p.until
			j.Past = append(j.Past, pool)
		}
		f.Services = append(f.Services, j)
	}
	return f
}

func poolOf(v topo.Version) poolJSON {
	p := poolJSON{Version: v.Version, Servers: []serverJSON{}}
	for _, s := range v.Servers {
		j := serverJSON{Name: s.Name, Locator: s.Locator, Address: s.Address, VNI: s.VNI, MAC: s.MAC, Weight: s.Weight}
		if s.Delivery != topo.ByAgent {
			j.Delivery = s.Delivery.String()
		}
		p.Servers = append(p.Servers, j)
	}
	return p
}
