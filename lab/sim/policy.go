package sim

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Family is the policies of one file. The file registers it:
//
//	var _ = Register(Family{Name: "rr", …})
//
// so that the list of policies and the colours of figures need no other place. The registry is written while packages
// are initialised and only read afterwards; that is why a package variable is
// better here than a list in a second file.
type Family struct {
	Name  string // of the policy, before the first colon
	Pairs bool   // NAME2 is there too, and chooses between two random servers
	Sees  Sight
	Names []Spelling

	// Parse reads the options after NAME: into p, which has its Name; nil: there
	// are none.
	Parse func(p *Policy, options string) error

	// New makes the policy for a run: a Chooser or an Offerer, and any of the
	// other interfaces of part.go.
	New func(e *Engine, p Policy) any
}

// Spelling is one name of a family as it is listed and drawn.
type Spelling struct {
	Name  string
	Means string // empty: it is not listed
	Drawn string // colour and dash, as "blue dashed"; empty: whichever is left
}

// Sight is a policy's knowledge of the servers.
type Sight uint8

const (
	Nothing    Sight = iota // no load
	Polled                  // the servers' answers now and then
	OwnFlows                // the flows in its own LB's table
	Reports                 // the servers' own numbers in packets that pass, or in answers to probes
	Offers                  // nothing: the servers decide, and may report
	Everything              // the servers themselves
)

func (s Sight) String() string {
	return [...]string{"no load", "polled load", "its LB's own flows", "reports of servers", "servers that are asked", "every server"}[s]
}

// families is the registry.
var families = map[string]Family{}

// Register adds a family and returns it. Call it in the declaration of a package
// variable. A name that is taken, or no constructor, is a panic.
func Register(f Family) Family {
	if _, taken := families[f.Name]; taken || f.Name == "" || f.New == nil {
		panic(fmt.Sprintf("register policy %q: the name is taken, or empty, or there is no constructor", f.Name))
	}
	families[f.Name] = f
	return f
}

// Policy is a way to spread load, as ParsePolicy makes it.
type Policy struct {
	Name       string        // as ParsePolicy reads it
	Base       string        // of its family
	TwoChoices bool          // look at two random servers only (…2)
	Choices    int           // servers that a request is offered to at most; 0: the LB decides alone
	Every      time.Duration // between polls or new weights; 0: the papers'
	Settings   any           // read from the options by its file
}

func (p Policy) String() string { return p.Name }

// Period is the time between updates, if the papers say usual ns.
func (p Policy) Period(usual int64) time.Duration { return cmp.Or(p.Every, time.Duration(usual)) }

// Spellings are those that have a meaning: by the sight of their families, then
// by name.
func Spellings() (all []Spelling) {
	for _, f := range sorted() {
		for _, s := range f.Names {
			if s.Means != "" {
				all = append(all, s)
			}
		}
	}
	return all
}

func sorted() []Family {
	return slices.SortedFunc(maps.Values(families), func(a, b Family) int {
		return cmp.Or(cmp.Compare(a.Sees, b.Sees), strings.Compare(a.Name, b.Name))
	})
}

// Policies are the names of Spellings.
func Policies() (names []string) {
	for _, s := range Spellings() {
		names = append(names, s.Name)
	}
	return names
}

// Sees is the sight of the policy's family.
func Sees(name string) Sight {
	base, _, _ := strings.Cut(name, ":")
	f, _ := family(base)
	return f.Sees
}

// Drawn is the colour and the dash of a policy's curve, empty if its family
// leaves them open.
func Drawn(name string) string {
	base, _, _ := strings.Cut(name, ":")
	f, _ := family(base)
	for _, s := range f.Names {
		if s.Name == name {
			return s.Drawn
		}
	}
	return ""
}

// family finds the family of a base, and whether the base is its NAME2.
func family(base string) (f Family, two bool) {
	if f, ok := families[base]; ok {
		return f, false
	}
	single, two := strings.CutSuffix(base, "2")
	if f = families[single]; two && f.Pairs {
		return f, true
	}
	return Family{}, false
}

// ParsePolicy reads a policy: the name of a family, a 2 for two random choices
// where it allows that, and its options after colons.
func ParsePolicy(name string) (Policy, error) {
	base, options, refined := strings.Cut(name, ":")
	f, two := family(base)
	if f.New == nil || refined && f.Parse == nil {
		return Policy{}, fmt.Errorf("unknown policy %q: want one of %s", name, strings.Join(Policies(), " "))
	}
	p := Policy{Name: name, Base: f.Name, TwoChoices: two}
	if f.Parse != nil {
		if err := f.Parse(&p, options); err != nil {
			return Policy{}, fmt.Errorf("policy %q: %w", name, err)
		}
	}
	return p, nil
}

// Refined reports whether the name has options, empty ones included.
func (p Policy) Refined() bool { return strings.Contains(p.Name, ":") }
