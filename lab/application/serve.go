package application

import (
	"context"
	"fmt"
	"path/filepath"

	"proffer/loadpage"
	"proffer/topo"
)

// served are the programs that are in the binary of proffer-lab, by their kind.
var served = map[string]struct {
	args  int
	serve func(args []string, busy *loadpage.Counter) error
}{
	"h2":         {3, serveGo},
	"grpc":       {3, serveGRPC},
	"grpc-proxy": {3, serveGRPCProxy},
	"sessions":   {1, serveSessions},
}

// Serve runs one of them until it fails. It reports its load on the page that an agent hands over at a
// socket; empty: it does not.
func Serve(kind, socket string, args []string) error {
	program, ok := served[kind]
	if !ok || len(args) != program.args {
		return fmt.Errorf("no program of the experiment load has these arguments: %s %q", kind, args)
	}
	busy := new(loadpage.Counter)
	if socket != "" {
		go busy.Report(context.Background(), socket) // until this process ends
	}
	return program.serve(args, busy)
}

// runServed starts one.
func (s *Site) runServed(kind, socket string, args ...string) error {
	return s.run(s.Lab, servedArgs(kind, socket, args...)...)
}

func servedArgs(kind, socket string, args ...string) []string {
	return append([]string{"serve", "--page", socket, kind}, args...)
}

// handedPage is the word of a program that writes on the page of the site's agent.
func handedPage(s *Site) (*topo.Offering, error) {
	return &topo.Offering{Source: topo.PageSource, Page: "unix:" + s.Page}, nil
}

// pageFile is the path of a load page that is a file.
func pageFile(s *Site) string { return filepath.Join(s.Dir, "load") }

// filePage is the word of a program that writes on such a page.
func filePage(s *Site) (*topo.Offering, error) {
	return &topo.Offering{Source: topo.PageSource, Page: pageFile(s)}, nil
}

// makePage makes it, as an agent does.
func makePage(s *Site) error {
	p, err := loadpage.OpenPage(pageFile(s), loadpage.Access{})
	if err != nil {
		return err
	}
	return p.Close()
}
