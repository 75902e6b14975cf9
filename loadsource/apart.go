package loadsource

import (
	"context"
	"errors"
	"fmt"
	"time"

	"proffer/foreign"
)

// apart reads a source in a goroutine of its own, so that the application can spoil its own load and
// nothing else. A reading may wait in the kernel for as long as the application likes: for a page of
// its memory (userfaultfd(2)), or a file system of its own. Then the goroutine and its thread stay
// behind, each for a source, and neither the other services nor the agent's end wait for it. A panic is an
// error. Memory and time of a reading are bounded before: no source maps foreign memory, and each makes
// room by bounds of its own, never by a number that it read.
type apart struct {
	Source
	turn chan struct{} // has room while no reading is in progress
}

func newApart(s Source) *apart { return &apart{s, make(chan struct{}, 1)} }

var errHangs = errors.New("a reading hangs: the application holds its memory, file or socket back")

// longestTrouble bounds the text of an error, in characters.
const longestTrouble = 300

// Read waits for as long as a word can be a load.
func (a *apart) Read(ctx context.Context, now time.Duration) (Reading, error) {
	return inTurn(ctx, a, func(ctx context.Context) (Reading, error) { return a.Source.Read(ctx, now) })
}

// begin tries to open a source that opens itself at a reading: the application finds it early.
func (a *apart) begin(open func() error) {
	_, _ = inTurn(context.Background(), a, func(context.Context) (any, error) { return nil, open() })
}

// inTurn does something apart. After errHangs, or the end of ctx, it may go on.
func inTurn[T any](ctx context.Context, a *apart, something func(context.Context) (T, error)) (none T, err error) {
	late := time.NewTimer(Stale)
	defer late.Stop()
	select {
	case a.turn <- struct{}{}:
	case <-late.C:
		return none, errHangs
	case <-ctx.Done():
		return none, ctx.Err()
	}
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	go func() {
		value, err := safely(ctx, something)
		<-a.turn
		done <- result{value, err}
	}()
	select {
	case r := <-done:
		return r.value, r.err
	case <-late.C:
		return none, errHangs
	case <-ctx.Done():
		return none, ctx.Err()
	}
}

// safely has neither a panic nor an error with a text that is foreign.
func safely[T any](ctx context.Context, something func(context.Context) (T, error)) (value T, err error) {
	defer func() {
		if fault := recover(); fault != nil {
			err = fmt.Errorf("the reading failed: %v", fault)
		}
		if err == nil {
			return
		}
		if text := foreign.Cut(err.Error(), longestTrouble); text != err.Error() {
			err = errors.New(text)
		}
	}()
	return something(ctx)
}

// Close closes the source when no reading is in progress any more. It does not wait for a reading that hangs.
func (a *apart) Close() error {
	select {
	case a.turn <- struct{}{}: // and never leaves it
		return a.Source.Close()
	case <-time.After(Within):
		go func() {
			a.turn <- struct{}{}
			a.Source.Close() // only read: nothing can be lost
		}()
		return nil
	}
}
