package table

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
)

// Server is a server as the table sees it.
type Server struct {
	ID     string // the same wherever the server stands in a list: its locator
	Weight uint16 // its share of the positions; 0 drains it: no position at all
}

// Build is Algorithm 3 of 6LB for m buckets and lists of c. The numbers in the
// lists are indices into servers, at most MaxServers. The table is a function of
// identities and weights alone: the order of servers changes the numbers, never
// positions. Compare tables before and after a removal by giving the
// removed server weight 0, which keeps the numbers of the others.
//
// Servers take turns; a server that has k times the weight of another takes k times
// the turns. Shares end where one server would have to fill two positions of a list.
func Build(servers []Server, m, c int) (*Table, error) {
	if err := checkSize(len(servers), m, c); err != nil {
		return nil, err
	}
	order, err := takers(servers)
	if err != nil {
		return nil, err
	}
	f := newFilling(m, min(c, len(order)))
	walks := make([]walk, len(order))
	for i, server := range order {
		walks[i] = newWalk(servers[server].ID, m)
	}
	if alike(servers, order) {
		f.inRounds(walks, order)
	} else {
		f.byWeight(walks, order, servers)
	}
	return f.table(), nil
}

func checkSize(servers, m, c int) error {
	switch {
	case m < 1 || m > MaxBuckets:
		return fmt.Errorf("table of %d buckets: want 1 to %d", m, MaxBuckets)
	case c < 1 || c > MaxChoices:
		return fmt.Errorf("table of %d choices: want 1 to %d", c, MaxChoices)
	case servers > MaxServers:
		return fmt.Errorf("table of %d servers: want at most %d", servers, MaxServers)
	}
	return nil
}

// takers are the servers that take flows, sorted by identity, so that every LB
// gives them their turns in one order.
func takers(servers []Server) ([]uint16, error) {
	order := make([]uint16, len(servers))
	for i := range order {
		order[i] = uint16(i)
	}
	slices.SortFunc(order, func(a, b uint16) int { return cmp.Compare(servers[a].ID, servers[b].ID) })
	for i, server := range order {
		switch id := servers[server].ID; {
		case id == "":
			return nil, errors.New("table: a server has no identity")
		case i > 0 && id == servers[order[i-1]].ID:
			return nil, fmt.Errorf("table: server %s stands there twice", id)
		}
	}
	return slices.DeleteFunc(order, func(s uint16) bool { return servers[s].Weight == 0 }), nil
}

func alike(servers []Server, order []uint16) bool {
	return !slices.ContainsFunc(order, func(s uint16) bool { return servers[s].Weight != servers[order[0]].Weight })
}
