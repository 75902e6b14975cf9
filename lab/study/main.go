package study

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"

	"proffer/lab/farm"
	"proffer/lab/sim"
	"proffer/lab/trace"
)

// Main is a small command line for a program that registers policies of its own
// (lab/sim/example): --farm, --policies, --rho, --seeds, --requests and --json as
// `proffer-lab sim` has them. It returns the exit code: 0 done, 1 failed, 2 a flag
// is wrong.
func Main(args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("sim", flag.ContinueOnError)
	flags.SetOutput(stderr)
	farm := flags.String("farm", "A", "a farm by name, or a farm `file`")
	policies := flags.String("policies", strings.Join(sim.Policies(), ","), "policies to compare, a `list` with commas")
	rhos := flags.String("rho", "0.88", "loads, a `list` with commas")
	seeds := flags.Int("seeds", 10, "runs of each policy at each load")
	requests := flags.Int("requests", 0, "requests a run; 0: the farm's number")
	asJSON := flags.Bool("json", false, "print a JSON array instead of the table")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	s, err := newStudy(*farm, *policies, *rhos, *seeds, *requests)
	if err != nil {
		fmt.Fprintln(stderr, err)
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	rows, err := s.Run(ctx, func(Progress) {})
	show := s.Print
	if *asJSON {
		show = func(w io.Writer, rows []Row) error { return Table(rows).JSON(w) }
	}
	if err := errors.Join(err, show(stdout, rows)); err != nil {
		fmt.Fprintln(stderr, err)
		return 1
	}
	return 0
}

func newStudy(farm, policies, rhos string, seeds, requests int) (*Study, error) {
	setting, err := open(farm)
	if err != nil {
		return nil, fmt.Errorf("--farm: %w", err)
	}
	if requests > 0 {
		if err := setting.SetRequests(requests); err != nil {
			return nil, fmt.Errorf("--requests %d: %w", requests, err)
		}
	}
	s := &Study{Setting: setting, Seeds: max(1, seeds)}
	for name := range strings.SplitSeq(policies, ",") {
		p, err := sim.ParsePolicy(name)
		if err != nil {
			return nil, fmt.Errorf("--policies: %w", err)
		}
		s.Policies = append(s.Policies, p)
	}
	for text := range strings.SplitSeq(rhos, ",") {
		rho, err := strconv.ParseFloat(text, 64)
		if err != nil || !(rho > 0 && rho < 1) {
			return nil, fmt.Errorf("--rho %q: want more than 0 and less than 1", text)
		}
		load, err := setting.At(rho)
		if err != nil {
			return nil, fmt.Errorf("--rho %v: %w", rho, err)
		}
		s.Loads = append(s.Loads, load)
	}
	return s, s.Check()
}

// open finds a farm by name, or reads a farm file.
func open(name string) (*Setting, error) {
	if !strings.ContainsAny(name, "./") {
		return Named(name)
	}
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	file, err := farm.Parse(name, data)
	if err != nil {
		return nil, err
	}
	return FromFile(file, func(path string) (*trace.File, error) {
		if !filepath.IsAbs(path) {
			path = filepath.Join(filepath.Dir(name), path)
		}
		file, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		defer file.Close()
		return trace.Read(path, file)
	})
}
