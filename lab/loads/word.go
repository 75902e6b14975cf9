package loads

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"proffer/control"
	"proffer/lab/farmrun"
	"proffer/loadpage"
	"proffer/loadsource"
	"proffer/topo"
)

// wordOf begins to read an application's own word.
func wordOf(ctx context.Context, o *topo.Offering) (word, error) {
	if socket, handed := topo.HandedAt(o.Page); handed {
		return newHandedWord(ctx, socket)
	}
	return newPolledWord(ctx, o)
}

// handedWord is a page of the agent's data plane, which an offer reads as it is.
type handedWord struct {
	conn *net.UnixConn
	page []byte
}

// newHandedWord waits until the program writes on the page: the program before it has ended.
func newHandedWord(ctx context.Context, socket string) (_ *handedWord, err error) {
	began := farmrun.Monotonic{}.Now()
	w := &handedWord{}
	if w.conn, w.page, err = loadpage.Receive(socket); err != nil {
		return nil, err
	}
	for late := time.Now().Add(farmrun.ReadyWithin); ; {
		_, written, err := loadpage.Word(bytes.NewReader(w.page))
		if err == nil && written > began {
			return w, nil
		}
		if time.Now().After(late) {
			err = errors.Join(err, errors.New("the program does not write on its load page"))
		}
		if err == nil {
			err = farmrun.Sleep(ctx, lookEvery)
		}
		if err != nil {
			w.close()
			return nil, err
		}
	}
}

func (w *handedWord) read() (float64, error) {
	busy, _, err := loadpage.Word(bytes.NewReader(w.page))
	return float64(busy), err
}

func (w *handedWord) close() {
	unix.Munmap(w.page)
	w.conn.Close()
}

// polledWord is a word that the agent's own loop reads, as often as it does where each sample is an
// offer. A word that does not come in time leaves that before, as at the agent for a second.
type polledWord struct {
	source  loadsource.Source
	busy    atomic.Uint32
	offers  atomic.Uint32
	stop    context.CancelFunc
	reading sync.WaitGroup
}

func newPolledWord(ctx context.Context, o *topo.Offering) (*polledWord, error) {
	source, err := loadsource.Open(o)
	if err != nil {
		return nil, err
	}
	first, err := source.Read(ctx, farmrun.Monotonic{}.Now())
	if err != nil {
		return nil, errors.Join(fmt.Errorf("its own word: %w", err), source.Close())
	}
	ctx, cancel := context.WithCancel(ctx)
	w := &polledWord{source: source, stop: cancel}
	w.busy.Store(first.Busy)
	of := map[int]control.Named{0: {Source: source, Service: o.Name, Load: o.Source.String()}}
	reports := control.NewReports(of, farmrun.Monotonic{}, slog.New(slog.DiscardHandler))
	w.reading.Go(func() { _ = reports.Run(ctx, w) }) // fails as Report and Asked do
	return w, nil
}

// Report and Asked are the data plane of the agent's loop.
func (w *polledWord) Report(_ int, busy uint32, _ time.Duration) error {
	w.busy.Store(busy)
	return nil
}

func (w *polledWord) Asked(int) (offers uint32, err error) { return w.offers.Swap(0), nil }

func (w *polledWord) read() (float64, error) {
	w.offers.Add(1)
	return float64(w.busy.Load()), nil
}

func (w *polledWord) close() {
	w.stop()
	w.reading.Wait()
	w.source.Close()
}
