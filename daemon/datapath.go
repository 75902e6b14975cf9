package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"

	"proffer/api"
	"proffer/config"
	"proffer/dataplane/edgenode"
	"proffer/topo"
)

// DatapathPlane is a datapath node's data plane.
type DatapathPlane interface {
	TunnelPlane
	Count(core, service int) (edgenode.Count, error)
	Virtual(core int) (_ edgenode.VirtualCore, there bool, _ error)
}

// datapath is the role of a datapath node.
type datapath struct {
	path  string
	cfg   *topo.Datapath
	plane DatapathPlane
}

// Datapath runs the datapath node that the file at path describes, until ctx ends.
func Datapath(ctx context.Context, path string, host *Host) error {
	hangups, stop := onHangup()
	defer stop()
	cfg, err := readDatapath(path)
	if err != nil {
		return err
	}
	if err := host.Preflight(); err != nil {
		return err
	}
	r := &datapath{path: path, cfg: cfg}
	if r.plane, err = host.Datapath(cfg); err != nil {
		return err
	}
	d := tunnels{tunnelRole: r, name: "node", node: cfg.Name, control: cfg.Control, plane: r.plane, host: host, hangups: hangups}
	return d.run(ctx)
}

func readDatapath(path string) (*topo.Datapath, error) {
	data, err := readFile(path)
	if err != nil {
		return nil, err
	}
	return config.ParseDatapath(path, data)
}

func (r *datapath) fars() (all []far) {
	for i, addr := range r.cfg.LBs {
		all = append(all, far{i, addr, r.cfg.Link})
	}
	return all
}

// reload checks the file: a node's chains change by a restart alone, after a drain.
func (r *datapath) reload() error {
	if _, err := readDatapath(r.path); err != nil {
		return err
	}
	return errors.New("a node takes its file at its start alone: drain it at the LBs and restart it")
}

// describe adds up the packets of each core.
func (r *datapath) describe(s *api.Status) (err error) {
	s.Edge = &api.EdgeStatus{}
	for core := range r.cfg.Cores {
		all := api.CoreStatus{Node: r.cfg.Name, Core: core}
		for _, c := range r.cfg.Chains {
			n, err := r.plane.Count(core, c.Service)
			if err != nil {
				return err
			}
			all.Packets += n.Packets
		}
		if all.Virtual, err = r.virtual(core); err != nil {
			return err
		}
		s.Edge.Cores = append(s.Edge.Cores, all)
	}
	return nil
}

// virtual is the work of a virtual core, nil for a core of the machine.
func (r *datapath) virtual(core int) (*api.VirtualStatus, error) {
	v, there, err := r.plane.Virtual(core)
	if err != nil || !there {
		return nil, err
	}
	return &api.VirtualStatus{At: int64(v.At), Busy: int64(v.Busy), Stayed: int64(v.Stayed), Served: v.Served, Dropped: v.Dropped}, nil
}

// closed closes a plane that was not attached, after err.
func closed(plane io.Closer, err error) error {
	if left := plane.Close(); left != nil {
		return errors.Join(err, fmt.Errorf("close the plane: %w", left))
	}
	return err
}
