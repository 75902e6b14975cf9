package testbed

import (
	"context"
	"fmt"
	"time"
)

// liveUntilKilled builds a bed, leaves a process and its child in it, tells
// run and pids, and waits to be killed. It gives up by itself after a minute.
func liveUntilKilled() error {
	b, err := Up(context.Background(), Config{Servers: 3, Delay: time.Millisecond})
	if err != nil {
		return err
	}
	defer b.Close()
	p, err := b.Servers[2].Start(context.Background(), "sh", "-c", "sleep 1000 & echo $!; wait")
	if err != nil {
		return err
	}
	for p.Log() == "" {
		time.Sleep(time.Millisecond)
	}
	fmt.Println(b.Run, p.Pid(), p.Log())
	time.Sleep(time.Minute)
	return nil
}
