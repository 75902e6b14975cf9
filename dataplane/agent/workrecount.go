package agent

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"sync/atomic"
	"unsafe"

	"github.com/cilium/ebpf/link"

	"proffer/dataplane/internal/plane"
	"proffer/dataplane/objects"
	"proffer/foreign"
	"proffer/topo"
)

// recounts are the programs of a recount: of the host's tasks, and of the sockets in a network
// namespace.
var recounts = []string{objects.WorkProgRecountTasks, objects.WorkProgRecountSockets, objects.WorkProgRecountUnix}

// halfWords are the words of either count of a service's terms, workWords all of the service's.
const (
	halfWords = objects.WorkTerms / 2
	workWords = int(unsafe.Sizeof(objects.AgentWork{})) / 8
)

// recount counts again while the programs count (bpf/work/count.h). If it cannot visit all
// tasks and sockets, the old counts stay, beside the new counts.
func (w *work) recount(grace *plane.Grace) error {
	if w == nil {
		return nil
	}
	turn := atomic.AddUint64(&w.turn[0], 1)
	if err := grace.Wait(); err != nil {
		return err
	}
	if err := w.visit(recounts[0]); err != nil {
		return err
	}
	all, err := w.visitSpaces()
	if err != nil || !all {
		return err
	}
	if err := grace.Wait(); err != nil {
		return err
	}
	for at := int((turn^1)&1) * halfWords; at < len(w.counts); at += workWords {
		for i := range halfWords {
			atomic.StoreUint64(&w.counts[at+i], 0)
		}
	}
	return nil
}

// visitSpaces visits the sockets of each network namespace. Of those that it may not enter it
// remembers the reason.
func (w *work) visitSpaces() (all bool, err error) {
	w.barred = map[string]string{}
	all = true
	for _, space := range w.spaces {
		err := foreign.Within(space, func() error { return errors.Join(w.visit(recounts[1]), w.visit(recounts[2])) })
		if errors.Is(err, foreign.ErrNotEntered) {
			all = false
			if errors.Is(err, fs.ErrPermission) {
				w.barred[space] = fmt.Sprintf("%v: %s", err, topo.Needs("CAP_SYS_ADMIN"))
			}
			continue
		}
		if err != nil {
			return false, err
		}
	}
	return all, nil
}

// whyNoRecount is the reason why the work of a service is not counted again; empty: it is, or
// need not be.
func (w *work) whyNoRecount(s *topo.Offering) string {
	if w == nil || !s.Measure.Work() || whyNoWork(s) != "" {
		return ""
	}
	return w.barred[s.Netns]
}

// visit runs a program for each task or socket.
func (w *work) visit(name string) error {
	iter, err := link.AttachIter(link.IterOptions{Program: w.coll.Programs[name]})
	if err != nil {
		return fmt.Errorf("run %s: %w", name, err)
	}
	defer iter.Close()
	r, err := iter.Open()
	if err != nil {
		return fmt.Errorf("run %s: %w", name, err)
	}
	defer r.Close()
	if _, err := io.Copy(io.Discard, r); err != nil {
		return fmt.Errorf("run %s: %w", name, err)
	}
	return nil
}
