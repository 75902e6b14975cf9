package weights

import (
	"testing"
	"time"
)

// TestAgeClass holds the shifts to the definition, at each border and beside it.
func TestAgeClass(t *testing.T) {
	begins := []time.Duration{0, AgeUnit}
	for octave := 1; len(begins) < Ages; octave++ {
		begins = append(begins, AgeUnit<<octave, AgeUnit<<octave+AgeUnit<<octave/2)
	}
	for class, at := range begins {
		if got := AgeClass(at); got != class {
			t.Errorf("age %v has class %d, want %d", at, got, class)
		}
		if got := AgeClass(at - 1); got != max(0, class-1) {
			t.Errorf("age %v has class %d, want %d", at-1, got, class-1)
		}
	}
	if got := AgeClass(1 << 62); got != Ages-1 {
		t.Errorf("a very old flow has class %d, want the last, %d", got, Ages-1)
	}
}

// TestOctaveMovesIntoAClass: flows of an octave are exactly a class when they are older
// by the octave's beginning. The survival is measured by that.
func TestOctaveMovesIntoAClass(t *testing.T) {
	for octave := 1; octave <= longestHorizon; octave++ {
		for part := range 1000 {
			age := horizon(octave) + horizon(octave)*time.Duration(part)/1000
			if got := AgeClass(age + horizon(octave)); got != 2*octave+2 {
				t.Fatalf("age %v, older by %v, has class %d, want %d", age, horizon(octave), got, 2*octave+2)
			}
		}
	}
}
