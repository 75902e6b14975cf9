package control

import (
	"context"
	"errors"
	"sync"
	"time"
)

const reportEvery = time.Millisecond

// Pages are the load pages of a plane's services, by the number of the service.
type Pages struct {
	mu      sync.Mutex
	open    map[int]Page
	changed chan struct{} // there are other pages
}

// NewPages makes them.
func NewPages(open map[int]Page) *Pages { return &Pages{open: open, changed: make(chan struct{}, 1)} }

// Of is the page of a service, if it has one.
func (p *Pages) Of(service int) (Page, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	page, ok := p.open[service]
	return page, ok
}

// Change goes over to other pages. No page is copied while the services get other numbers in
// renumber; if it fails, the pages stay.
func (p *Pages) Change(to map[int]Page, renumber func() error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := renumber(); err != nil {
		return err
	}
	p.open = to
	select {
	case p.changed <- struct{}{}:
	default:
	}
	return nil
}

// copy copies each page and returns how many there are.
func (p *Pages) copy(to Reporter) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var errs []error
	for service, page := range p.open {
		busy, written := page.Read()
		errs = append(errs, to.Report(service, busy, written))
	}
	return len(p.open), errors.Join(errs...)
}

// Reports copies each page to the data plane every millisecond, so that an offer
// meets a fresh report, until ctx ends. Without pages it waits for some.
func Reports(ctx context.Context, clock Clock, pages *Pages, to Reporter) error {
	for {
		if err := reportSome(ctx, clock, pages, to); err != nil || ctx.Err() != nil {
			return err
		}
		select {
		case <-ctx.Done():
		case <-pages.changed:
		}
	}
}

// reportSome copies for as long as there are pages.
func reportSome(ctx context.Context, clock Clock, pages *Pages, to Reporter) error {
	pages.mu.Lock()
	some := len(pages.open)
	pages.mu.Unlock()
	if some == 0 {
		return nil
	}
	ticks, stop := clock.Tick(reportEvery)
	defer stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticks:
		}
		if n, err := pages.copy(to); n == 0 || err != nil {
			return err
		}
	}
}
