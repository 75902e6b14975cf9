package loadsource

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"proffer/loadpage"
	"proffer/topo"
)

type page struct{ *loadpage.Page }

func openPage(o *topo.Offering) (Source, error) {
	access := loadpage.Access{Owner: o.PageOwner, Group: o.PageGroup, Mode: fs.FileMode(o.PageMode)}
	if socket, handed := topo.HandedAt(o.Page); handed {
		h, err := loadpage.NewHand(socket, access)
		if err != nil {
			return nil, err
		}
		return &handedPage{Hand: h}, nil
	}
	p, err := loadpage.OpenPage(o.Page, access)
	if err != nil {
		return nil, err
	}
	return page{p}, nil
}

func (p page) Every() time.Duration { return everyPage }

// Read returns the page as it is, with the writer's time.
func (p page) Read(_ context.Context, now time.Duration) (Reading, error) {
	return reading(now, p.Page.Read)
}

// handedPage is a page that programs map from the data plane, which reads it itself: this source only
// watches it.
type handedPage struct {
	*loadpage.Hand
	mu     sync.Mutex
	memory []byte
}

// Give hands the page over from now on, and owns it.
func (p *handedPage) Give(page *os.File) error {
	memory, err := unix.Mmap(int(page.Fd()), 0, loadpage.PageSize, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return errors.Join(fmt.Errorf("map the load page: %w", err), page.Close())
	}
	p.mu.Lock()
	p.memory = memory
	p.mu.Unlock()
	return p.Hand.Give(page)
}

func (p *handedPage) Every() time.Duration { return everyHanded }

func (p *handedPage) Read(_ context.Context, now time.Duration) (Reading, error) {
	return reading(now, func() (busy uint32, written time.Duration) {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.memory == nil {
			return 0, 0
		}
		busy, written, _ = loadpage.Word(bytes.NewReader(p.memory))
		return busy, written
	})
}

func (p *handedPage) Close() error {
	err := p.Hand.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.memory != nil {
		err = errors.Join(err, unix.Munmap(p.memory))
		p.memory = nil
	}
	return err
}

// reading is the word on a page, and why it is no load.
func reading(now time.Duration, read func() (uint32, time.Duration)) (Reading, error) {
	busy, written := read()
	r := Reading{Busy: busy, Written: written}
	switch {
	case written == 0:
		return r, errors.New("the page was never written")
	case written < 0 || written > now+Stale:
		return r, errors.New("the page was written in the future: its writer has a clock that is not CLOCK_MONOTONIC")
	case written+Stale < now:
		return r, fmt.Errorf("the page is not written any more")
	}
	_, err := count(float64(busy))
	return r, err
}
