package testbed

import (
	"context"
	"fmt"
	"os"
	"time"
)

// liveUntilKilled builds a bed, kills and revives in it, leaves pins, a process
// and its child, reports run and pids, and waits to be killed. It gives up by
// itself after a minute.
func liveUntilKilled() error {
	b, err := Up(context.Background(), Config{Servers: 3, LBs: 2, Delay: Delay{Mean: time.Millisecond}})
	if err != nil {
		return err
	}
	defer b.Close()
	for _, n := range []*Node{b.LBs[0], b.Servers[0]} {
		if err := b.Kill(n); err != nil {
			return err
		}
	}
	if err := b.Revive(context.Background(), b.LBs[0]); err != nil {
		return err
	}
	if _, err := b.Behind(b.Servers[1], RoutedVeth); err != nil {
		return err
	}
	if err := os.MkdirAll(b.LBs[0].Pin(), 0o700); err != nil {
		return err
	}
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
