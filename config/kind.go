package config

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"proffer/policy"
	"proffer/schema"
	"proffer/topo"
)

// Link is a name that the kernel accepts for an interface (dev_valid_name).
func Link() schema.Kind[string] {
	k := schema.Word("the name of a network interface such as eth0", 15, "!-.0-9;-~")
	word := k.Read
	k.Read = func(s string) (string, error) {
		if s == "." || s == ".." {
			return "", schema.ErrNot
		}
		return word(s)
	}
	return k
}

// file is an absolute path of at most longest bytes.
func file(want string, longest int) schema.Kind[string] {
	return schema.Text(want, func(s string) (string, error) {
		if !path.IsAbs(s) || path.Clean(s) != s || s == "/" || len(s) > longest {
			return "", schema.ErrNot
		}
		return s, nil
	}).Like("^/.")
}

// Socket fits sockaddr_un with its final zero (unix(7)).
func Socket() schema.Kind[string] {
	return file("an absolute path of at most 107 bytes such as /run/proffer/lb.sock", 107)
}

// PinFolder is a directory of a bpffs, which keeps dots in names to itself (kernel,
// bpf_lookup). Where it is mounted may have some.
func PinFolder() schema.Kind[string] {
	k := file("an absolute path in a BPF file system such as /sys/fs/bpf/proffer/lb", 4095)
	absolute := k.Read
	k.Read = func(s string) (string, error) {
		if strings.Contains(path.Base(s), ".") {
			return "", errors.New("has a dot in its last part, which a BPF file system refuses")
		}
		return absolute(s)
	}
	return k.Like("^/(.*/)?[^./]+$")
}

func StateFile() schema.Kind[string] {
	return file("the absolute path of the file that records the pools served, such as /var/lib/proffer/lb.json", 4095)
}

// keyFile reads none as the empty path.
func keyFile() schema.Kind[string] {
	k := file("the absolute path of the file of signal keys, such as /etc/proffer/signal.keys, or the word "+noKeys, 4095)
	absolute := k.Read
	k.Read = func(s string) (string, error) {
		if s == noKeys {
			return "", nil
		}
		return absolute(s)
	}
	return k.Like("^(none$|/.)").Spelt(func(path string) string { return cmp.Or(path, noKeys) }).Eg("/etc/proffer/signal.keys", noKeys)
}

// page is the path of a file, or of a socket that hands a page over.
func page() schema.Kind[string] {
	k := file("the absolute path of the page that holds the load, such as /run/proffer/web.load, or unix: and that of the socket that hands it over, of at most 103 bytes", 4095)
	absolute, short := k.Read, file("", 103)
	k.Read = func(s string) (string, error) {
		at, handed := topo.HandedAt(s)
		if !handed {
			return absolute(s)
		}
		_, err := short.Read(at)
		return s, err
	}
	return k.Like("^(unix:)?/.").Eg("/run/proffer/web.load", `"unix:/run/proffer/web.sock"`)
}

// account is the name or the number of a user or a group.
func account(of string) schema.Kind[string] {
	return schema.Word("the name or number of a "+of+" such as www-data", 32, "A-Za-z0-9_-")
}

// mode is spelt as chmod(1) has it; 0 is that of a page as it is.
func mode(m uint32) string {
	if m == 0 {
		return ""
	}
	return fmt.Sprintf("%04o", m)
}

// permissions are those of a file (chmod(1)).
func permissions() schema.Kind[uint32] {
	return schema.Text("four octal digits from 0000 to 0777 such as 0660", func(s string) (uint32, error) {
		mode, err := strconv.ParseUint(s, 8, 32)
		if err != nil || len(s) != 4 || mode > 0o777 {
			return 0, schema.ErrNot
		}
		return uint32(mode), nil
	}).Spelt(mode).Like("^0[0-7]{3}$")
}

// decision is how an agent accepts, with the threshold when it is static.
type decision struct {
	acceptance topo.Acceptance
	threshold  int
}

func acceptance() schema.Kind[decision] {
	var words, patterns, egs []string
	for _, a := range topo.Acceptances() {
		word := a.Pattern()
		if a.Row().Threshold {
			word += fmt.Sprintf(" with C from 0 to %d", topo.MaxThreshold)
		}
		words = append(words, word)
		patterns, egs = append(patterns, strings.ReplaceAll(a.Pattern(), ":C", ":(0|[1-9][0-9]{0,4})")), append(egs, a.Spell(4))
	}
	slices.SortStableFunc(egs, func(a, b string) int { return strings.Index(b, ":") - strings.Index(a, ":") }) // an example with a threshold shows more
	return schema.Text(schema.Either(words), func(s string) (decision, error) {
		a, threshold, err := policy.ParseAcceptance(s)
		if err != nil {
			return decision{}, schema.ErrNot
		}
		return decision{a, threshold}, nil
	}).Telling(told(topo.Acceptances(), topo.Acceptance.Pattern, topo.Acceptance.Meaning)).Spelt(decision.spell).Like("^(" + strings.Join(patterns, "|") + ")$").Eg(egs...)
}

func (d decision) spell() string { return d.acceptance.Spell(d.threshold) }

// ownership is where an agent looks up the owner of a flow.
type ownership struct {
	owner topo.Owner
	netns string
}

func (o ownership) spell() string { return strings.TrimSpace(o.owner.String() + " " + o.netns) }

func owner() schema.Kind[ownership] {
	const want = "socket, table, or netns PATH with the absolute path of a network namespace such as /run/netns/web"
	namespace := file("", 4095)
	return schema.Text(want, func(s string) (ownership, error) {
		path, elsewhere := strings.CutPrefix(s, topo.Netns.String()+" ")
		switch {
		case elsewhere:
			path, err := namespace.Read(path)
			return ownership{topo.Netns, path}, err
		case s == topo.Socket.String():
			return ownership{owner: topo.Socket}, nil
		case s == topo.Table.String():
			return ownership{owner: topo.Table}, nil
		default:
			return ownership{}, schema.ErrNot
		}
	}).Spelt(ownership.spell).Like("^(socket|table|netns /.+)$").Eg("socket", "netns /run/netns/web", "table")
}
