package loadsource

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"proffer/loadpage"
	"proffer/topo"
)

type page struct{ *loadpage.Page }

func openPage(o *topo.Offering) (Source, error) {
	p, err := loadpage.OpenPage(o.Page, loadpage.Access{Owner: o.PageOwner, Group: o.PageGroup, Mode: fs.FileMode(o.PageMode)})
	if err != nil {
		return nil, err
	}
	return page{p}, nil
}

func (p page) Every() time.Duration { return everyPage }

// Read returns the page as it is, with the writer's time.
func (p page) Read(_ context.Context, now time.Duration) (Reading, error) {
	busy, written := p.Page.Read()
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
