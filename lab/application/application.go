// Package application has real server programs: how each is started, and a client that speaks
// its protocol. The experiment `load` holds the load that an agent reads to them. A file a kind
// of program; those that had to be written are in source/ or run from this binary.
package application

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"proffer/topo"
)

// Request is the work that a client asks of a program: so much of its CPU time, and then so much waiting.
// Neither is answered at once.
type Request struct{ CPU, Wait time.Duration }

// Conn is a client's connection. Clients that share one ask at the same time.
type Conn interface {
	// Ask returns when the last byte of the answer has come.
	Ask(context.Context, Request) error
	Close() error
}

// Program is a server program.
type Program struct {
	Name  string
	Needs []Need
	// Start starts it at the site's address.
	Start func(context.Context, *Site) error
	// Dial opens a client's connection, which has asked nothing yet.
	Dial func(context.Context, *Site) (Conn, error)
	// Share is how many clients have a connection together; 0 means 1.
	Share int
	// Word is where the application has its own word; nil if it has none.
	Word func(*Site) (*topo.Offering, error)

	UDP        bool
	Without    []Kind          // requests that it is not asked
	Exceptions map[Kind]string // why the default does not see its requests
	// Cure is the name of the program that does the same so that its requests are seen, if the
	// application does not know of them itself.
	Cure string
}

// Kind is the kind of requests: those that take CPU time, those that wait, or either.
type Kind string

// The kinds of requests.
const (
	CPU   Kind = "cpu"
	Wait  Kind = "wait"
	Mixed Kind = "mixed"
)

// Kinds lists those that the program can be asked.
func (p *Program) Kinds() []Kind {
	return slices.DeleteFunc([]Kind{CPU, Wait, Mixed}, func(k Kind) bool { return slices.Contains(p.Without, k) })
}

// excepting is an exception of kinds of requests.
func excepting(why string, kinds ...Kind) map[Kind]string {
	all := map[Kind]string{}
	for _, k := range kinds {
		all[k] = why
	}
	return all
}

// Need is a program or module, by its path or pattern, and the Debian package that has it.
type Need struct{ Path, Package string }

// Programs lists all programs.
func Programs() []*Program {
	return []*Program{
		nginxPlain(), nginxSecure(), nginxProxy(), apachePrefork(), apacheEvent(), phpFPM(),
		goSecure(), inThreads(goSecure()), goRPC(), inThreads(goRPC()), proxyRPC(), node(), nodeTimers(), gunicorn(), java(), redis(), memcached(), postgres(), daemonSSH(), mosquitto(), unbound(),
	}
}

// Missing is an error that names the files that a program lacks on this machine, and the command that installs them.
func (p *Program) Missing() error {
	var lacks, packages []string
	for _, n := range p.Needs {
		if !n.there() {
			lacks, packages = append(lacks, n.Path), append(packages, n.Package)
		}
	}
	if len(lacks) == 0 {
		return nil
	}
	slices.Sort(packages)
	return fmt.Errorf("%s: %s is missing: apt-get install --no-install-recommends %s", p.Name, strings.Join(lacks, ", "), strings.Join(slices.Compact(packages), " "))
}

func (n Need) there() bool { return n.find() != "" }

// find returns the path, the last of several.
func (n Need) find() string {
	if strings.HasPrefix(n.Path, "/") {
		found, err := filepath.Glob(n.Path)
		if err != nil || len(found) == 0 {
			return ""
		}
		return found[len(found)-1]
	}
	path, err := exec.LookPath(n.Path)
	if err != nil {
		return ""
	}
	return path
}

// Named returns the programs with these names, in their order; none means all.
func Named(names []string) ([]*Program, error) {
	all := Programs()
	if len(names) == 0 {
		return all, nil
	}
	var chosen []*Program
	var errs []error
	for _, name := range names {
		i := slices.IndexFunc(all, func(p *Program) bool { return p.Name == name })
		if i < 0 {
			errs = append(errs, fmt.Errorf("unknown program %q: want %s", name, strings.Join(Names(), ", ")))
			continue
		}
		chosen = append(chosen, all[i])
	}
	return chosen, errors.Join(errs...)
}

// Names are those of all programs.
func Names() (names []string) {
	for _, p := range Programs() {
		names = append(names, p.Name)
	}
	return names
}

// write writes a file of a program, and returns its path.
func (s *Site) write(name, text string) (string, error) {
	path := filepath.Join(s.Dir, name)
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		return path, fmt.Errorf("configure: %w", err)
	}
	return path, nil
}
