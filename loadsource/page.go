package loadsource

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"proffer/loadpage"
	"proffer/topo"
)

// page is a page in a file. The application may own the folder, so a file that cannot be opened costs
// this load, until it can.
type page struct {
	path   string
	access loadpage.Access
	opened *loadpage.Page
}

func openPage(o *topo.Offering) (Source, error) {
	access := loadpage.Access{Owner: o.PageOwner, Group: o.PageGroup, Mode: fs.FileMode(o.PageMode)}
	if _, _, err := access.Numbers(); err != nil {
		return nil, fmt.Errorf("load page %s: %w", o.Page, err)
	}
	if socket, handed := topo.HandedAt(o.Page); handed {
		p := &handedPage{socket: socket, access: access}
		p.apart = newApart(&watched{p})
		return p, nil
	}
	p := &page{path: o.Page, access: access}
	a := newApart(p)
	a.begin(p.open)
	return a, nil
}

func (p *page) open() (err error) {
	if p.opened == nil {
		p.opened, err = loadpage.OpenPage(p.path, p.access)
	}
	return err
}

func (p *page) Every() time.Duration { return everyPage }

// Read returns the page as it is, with the writer's time.
func (p *page) Read(_ context.Context, now time.Duration) (Reading, error) {
	if err := p.open(); err != nil {
		return Reading{}, err
	}
	return reading(now, p.opened.Read)
}

func (p *page) Close() error {
	if p.opened == nil {
		return nil
	}
	return p.opened.Close()
}

// handedPage is a page that programs map from the data plane, which reads it itself: this source only
// watches it, and makes the socket that hands it over.
type handedPage struct {
	*apart
	socket string
	access loadpage.Access
	page   *os.File
	memory []byte // of the page
	hand   *loadpage.Hand
}

// Give hands the page over from now on, and owns it.
func (p *handedPage) Give(page *os.File) error {
	memory, err := unix.Mmap(int(page.Fd()), 0, loadpage.PageSize, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return errors.Join(fmt.Errorf("map the load page: %w", err), page.Close())
	}
	p.begin(func() error {
		p.page, p.memory = page, memory
		return p.open()
	})
	return nil
}

// open makes the socket, if there is a page and no socket yet.
func (p *handedPage) open() error {
	if p.page == nil || p.hand != nil {
		return nil
	}
	hand, err := loadpage.NewHand(p.socket, p.access)
	if err != nil {
		return err
	}
	if err := hand.Give(p.page); err != nil {
		return errors.Join(err, hand.Close())
	}
	p.hand = hand
	return nil
}

// watched is a page that is handed over, in its turn.
type watched struct{ *handedPage }

func (p *watched) Every() time.Duration { return everyHanded }

func (p *watched) Read(_ context.Context, now time.Duration) (Reading, error) {
	if err := p.open(); err != nil {
		return Reading{}, err
	}
	return reading(now, func() (busy uint32, written time.Duration) {
		if p.memory == nil {
			return 0, 0
		}
		busy, written, _ = loadpage.Word(bytes.NewReader(p.memory))
		return busy, written
	})
}

func (p *watched) Close() (err error) {
	if p.hand != nil {
		err = p.hand.Close()
	}
	if p.page != nil {
		err = errors.Join(err, p.page.Close(), unix.Munmap(p.memory))
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
