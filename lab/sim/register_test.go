package sim

import "testing"

// TestRegister: a name is taken once, and a family that cannot be made is refused.
func TestRegister(t *testing.T) {
	for _, f := range []Family{{Name: "rr", New: families["rr"].New}, {Name: "new"}, {New: families["rr"].New}} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("Register took %+v", f)
				}
			}()
			Register(f)
		}()
	}
}
