package farmrun

import (
	"fmt"
	"math"

	"proffer/lab/testbed"
	"proffer/lab/traffic/responder"
)

// Kinds are the servers of a farm on virtual cores, of which the last ones may be faster
// than the others, by the speed of their cores or by their number.
type Kinds struct {
	Servers int
	Cores   int // a server
	Workers int // a server

	Fast      int     // servers that are faster
	Speed     float64 // of a core of theirs, beside the others'; 0 means 1
	FastCores int     // of each of them; 0: as many as the others have
}

// Check returns an error for servers that cannot be, by the flags that set them.
func (k Kinds) Check() error {
	switch {
	case k.Servers < 1 || k.Servers > testbed.MaxServers:
		return fmt.Errorf("--servers %d: want 1 to %d", k.Servers, testbed.MaxServers)
	case k.Cores < 1 || k.Cores > 1024:
		return fmt.Errorf("--cores %d: want 1 to 1024", k.Cores)
	case k.Workers < 1 || k.Workers > 65535:
		return fmt.Errorf("--workers %d: want 1 to 65535", k.Workers)
	case k.Workers < k.Cores:
		return fmt.Errorf("--workers %d: fewer than --cores %d, so some cores could never work", k.Workers, k.Cores)
	}
	return k.checkFast()
}

func (k Kinds) checkFast() error {
	switch {
	case k.Fast < 0 || k.Fast > k.Servers:
		return fmt.Errorf("--fast-servers %d: want 0 to %d, the number of servers", k.Fast, k.Servers)
	case k.Fast > 0 && k.Speed == 0 && k.FastCores == 0:
		return fmt.Errorf("--fast-servers %d: say how fast by --speed or --fast-cores", k.Fast)
	case k.Fast == 0 && k.Speed != 0:
		return fmt.Errorf("--speed %v: of how many servers? --fast-servers is 0", k.Speed)
	case k.Fast == 0 && k.FastCores != 0:
		return fmt.Errorf("--fast-cores %d: of how many servers? --fast-servers is 0", k.FastCores)
	case k.Speed != 0 && !(k.Speed >= 0.1 && k.Speed <= 10):
		return fmt.Errorf("--speed %v: want 0.1 to 10 times", k.Speed)
	case k.FastCores < 0 || k.FastCores > k.Workers:
		return fmt.Errorf("--fast-cores %d: want 1 to %d, the number of workers", k.FastCores, k.Workers)
	}
	return nil
}

// Faster reports whether server i, from 0, is one of the faster ones.
func (k Kinds) Faster(i int) bool { return i >= k.Servers-k.Fast }

// Machine is the capacity of server i.
func (k Kinds) Machine(i int) responder.Machine {
	m := responder.Machine{Cores: k.Cores, Workers: k.Workers, Discipline: responder.Sharing}
	if k.Faster(i) {
		m.Speed = k.Speed
		if k.FastCores > 0 {
			m.Cores = k.FastCores
		}
	}
	return m
}

// Machines are those of all servers.
func (k Kinds) Machines() []responder.Machine {
	all := make([]responder.Machine, k.Servers)
	for i := range all {
		all[i] = k.Machine(i)
	}
	return all
}

// Named is the capacity of a server by its name on the testbed.
func (k Kinds) Named(server string) responder.Machine { return k.Machine(ServerIndex(server)) }

// ServerIndex is the position of a server among those of its bed, by its name; -1 if it has none.
func ServerIndex(name string) int {
	i := 0
	if n, err := fmt.Sscanf(name, "s%d", &i); n != 1 || err != nil {
		return -1
	}
	return i - 1
}

// Capacity is the service time that the farm works off in a second, in seconds.
func (k Kinds) Capacity() float64 {
	sum := 0.0
	for _, m := range k.Machines() {
		sum += m.Capacity()
	}
	return sum
}

// WeightsOf are those that an operator configures, by the servers' capacities; nil if they are
// alike. Inverted, each kind has the weight of the other.
func (k Kinds) WeightsOf(inverted bool) []int {
	if k.Fast == 0 || k.Fast == k.Servers {
		return nil
	}
	all := make([]int, k.Servers)
	for i := range all {
		of := k.Machine(i)
		if inverted && k.Faster(i) {
			of = k.Machine(0)
		} else if inverted {
			of = k.Machine(k.Servers - 1)
		}
		all[i] = int(math.Round(weightOfCore * of.Capacity()))
	}
	return all
}

// weightOfCore is the weight of a core of speed 1: large enough for any --speed.
const weightOfCore = 10

// Short is the farm in the title of a picture.
func (k Kinds) Short() string {
	if k.Fast == 0 {
		return fmt.Sprintf("%d servers", k.Servers)
	}
	return fmt.Sprintf("%d servers, %d of them %g times as fast", k.Servers, k.Fast, k.Machine(k.Servers-1).Capacity()/k.Machine(0).Capacity())
}

func (k Kinds) String() string {
	text := fmt.Sprintf("%d servers × %d cores × %d workers", k.Servers, k.Cores, k.Workers)
	if k.Fast == 0 {
		return text
	}
	of := k.Machine(k.Servers - 1)
	return fmt.Sprintf("%s, %d of them with %d cores of speed %g", text, k.Fast, of.Cores, of.Capacity()/float64(of.Cores))
}
