package loadpage

import "context"

// Counter is a program's busy count: the page has each change of it at once, where Report's page
// may be behind by the requests of a tenth of a second. It is ready to use.
type Counter struct {
	w    writer
	busy uint32 // with the writer's mutex
}

// Report keeps the page that the agent hands over at a socket, as the function Report does, until ctx
// ends. The program counts before that, too, and where no agent answers.
func (c *Counter) Report(ctx context.Context, socket string) error {
	return c.w.keep(ctx, socket, func() uint32 { return c.busy })
}

// Add counts a request that begins.
func (c *Counter) Add() { c.move(1) }

// Done counts that a request is answered. It panics if none is in progress.
func (c *Counter) Done() { c.move(-1) }

func (c *Counter) move(by int) {
	_ = c.w.write(func() uint32 { // without a clock Report fails, too
		if by < 0 && c.busy == 0 {
			panic("loadpage: Done without Add")
		}
		c.busy += uint32(by)
		return c.busy
	})
}
