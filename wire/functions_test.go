package wire

import "testing"

// TestNames: every value of the enums of C has a name in Go, which no second value of
// its enum has.
func TestNames(t *testing.T) {
	seen := map[any]string{}
	for _, v := range named {
		name := v.String()
		if f, function := v.(Function); function && f != None {
			known := false
			for _, s := range Signals() {
				known = known || s.Function == f
			}
			if !known {
				t.Errorf("function %s stands in no row of Signals", name)
			}
		}
		for other, its := range seen {
			if its == name {
				t.Errorf("%#v and %#v have the name %q", v, other, name)
			}
		}
		seen[v] = name
	}
}

func TestNamesOfOthers(t *testing.T) {
	if name := Function(0x1234).String(); name != "1234" {
		t.Errorf("an unknown function is called %q", name)
	}
	if name := Flags(0x20).String(); name != "0x20" {
		t.Errorf("an unknown flag is called %q", name)
	}
}
