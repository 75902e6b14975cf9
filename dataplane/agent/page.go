package agent

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"proffer/loadpage"
	"proffer/topo"
)

// handed are the pages that programs map from the data plane (bpf/agent/load/page.h).
type handed map[topo.VIP]*handedPage

type handedPage struct {
	m      *ebpf.Map
	memory *ebpf.Memory
}

// handPage gives a service a page of its own, which it keeps while it is offered, or none.
func (a *Agent) handPage(s *topo.Offering, number uint32) error {
	if !s.Handed() {
		if err := a.objs.Pages.Delete(number); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("take the page of service %s away: %w", s.Name, err)
		}
		return nil
	}
	if a.handed[s.VIP] == nil {
		page, err := newHandedPage()
		if err != nil {
			return fmt.Errorf("make the page of service %s: %w", s.Name, err)
		}
		a.handed[s.VIP] = page
	}
	if err := a.objs.Pages.Put(number, a.handed[s.VIP].m); err != nil {
		return fmt.Errorf("set the page of service %s: %w", s.Name, err)
	}
	return nil
}

func newHandedPage() (*handedPage, error) {
	m, err := ebpf.NewMap(&ebpf.MapSpec{
		Type:       ebpf.Array,
		KeySize:    4,
		ValueSize:  loadpage.PageSize,
		MaxEntries: 1,
		Flags:      unix.BPF_F_MMAPABLE,
	})
	if err != nil {
		return nil, err
	}
	memory, err := m.Memory()
	if err == nil {
		_, err = memory.WriteAt([]byte(loadpage.PageMagic), 0)
	}
	if err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return &handedPage{m, memory}, nil
}

// Page is the page of service i, for the program that writes it, which needs no privilege to map it.
// The caller closes it.
func (a *Agent) Page(i int) (*os.File, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	page := a.handed[a.services[i].VIP]
	if page == nil {
		return nil, fmt.Errorf("service %s has no page", a.services[i].Name)
	}
	fd, err := unix.FcntlInt(uintptr(page.m.FD()), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("duplicate the page of service %s: %w", a.services[i].Name, err)
	}
	return os.NewFile(uintptr(fd), "page of "+a.services[i].Name), nil
}

// keep closes the pages of other services; programs that have them mapped write into the void.
func (h handed) keep(services []topo.Offering) error {
	var errs []error
	for vip, page := range h {
		if !slices.ContainsFunc(services, func(s topo.Offering) bool { return s.VIP == vip && s.Handed() }) {
			errs = append(errs, page.m.Close())
			delete(h, vip)
		}
	}
	return errors.Join(errs...)
}

// word reads the application's own word of a service; false: it is no load (bpf/agent/load/page.h).
func (a *Agent) word(s *topo.Offering, number uint32, now time.Duration) (busy uint32, known bool, err error) {
	var written time.Duration
	if page := a.handed[s.VIP]; page != nil {
		busy, written, err = loadpage.Word(page.memory)
	} else {
		busy, written, err = a.reported(number)
	}
	known = written > 0 && (now-written).Abs() <= topo.StaleNs && busy <= topo.MostBusy
	return busy, known, err
}
