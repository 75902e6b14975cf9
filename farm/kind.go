package farm

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"proffer/config"
	"proffer/schema"
	"proffer/topo"
)

// routed is the word for a node without an address of its own in the file.
const routed = "routed"

// place is the address of a node, or the word for none.
func place(who string) schema.Kind[At] {
	address := config.HostAddress(who)
	return schema.Text(address.Want+", or the word "+routed, func(s string) (At, error) {
		if s == routed {
			return At{Routed: true}, nil
		}
		a, err := address.Read(s)
		return At{Addr: a}, err
	}).Spelt(func(a At) string {
		if a.Routed {
			return routed
		}
		return spell(a.Addr)
	}).Like("^(" + routed + "|[0-9A-Fa-f:.]+)$")
}

func spell(a netip.Addr) string {
	if !a.IsValid() {
		return ""
	}
	return a.String()
}

// anyPort is the word for all ports of an address.
const anyPort = "any"

// ports is a port, a range, or any; of UDP with "udp/" before.
func ports() schema.Kind[Port] {
	const want = "a port such as 80, a range such as 8000-8010, or the word any, each of UDP with udp/ before it"
	return schema.TextOrNumber(want, func(s string) (p Port, err error) {
		protocol, number, both := strings.Cut(s, "/")
		switch {
		case !both:
			number = s
		case protocol == topo.UDP.String():
			p.Protocol = topo.UDP
		case protocol != topo.TCP.String():
			return p, schema.ErrNot
		}
		if number == anyPort {
			p.Low, p.High = 1, 65535
			return p, nil
		}
		low, high, two := strings.Cut(number, "-")
		if p.Low, err = port(low); err != nil {
			return Port{}, err
		}
		if p.High = p.Low; two {
			p.High, err = port(high)
		}
		if err == nil && p.High < p.Low {
			return Port{}, fmt.Errorf("ends before it begins")
		}
		return p, err
	}).Spelt(Port.String).Like("^((tcp|udp)/)?(any|[1-9][0-9]{0,4}(-[1-9][0-9]{0,4})?)$").Eg("80", `"udp/53"`)
}

func port(s string) (uint16, error) {
	n, err := strconv.ParseUint(s, 10, 16)
	if err != nil || n == 0 || strconv.FormatUint(n, 10) != s {
		return 0, schema.ErrNot
	}
	return uint16(n), nil
}

// Any reports whether it is every port.
func (p Port) Any() bool { return p.Low == 1 && p.High == 65535 }

// String is as the file spells it.
func (p Port) String() string {
	text := fmt.Sprint(p.Low)
	switch {
	case p.Any():
		text = anyPort
	case p.High > p.Low:
		text = fmt.Sprintf("%d-%d", p.Low, p.High)
	}
	if p.Protocol == topo.UDP {
		return "udp/" + text
	}
	return text
}

// recovery is topo.Recovery, or none: the usual one of the service.
type recovery uint8

const usual recovery = 0

func recoveryOf(r topo.Recovery) recovery { return recovery(r) + 1 }

func (r recovery) String() string {
	if r == usual {
		return ""
	}
	return topo.Recovery(r - 1).String()
}

func recoveries() schema.Kind[recovery] {
	return schema.OneOf(recoveryOf(topo.HistoryRecovery), recoveryOf(topo.AgentsRecovery))
}
