package weights

import "testing"

// TestFlood: a flood begins below half of the flows that come to life, and ends above seven in ten; of few
// flows there is none.
func TestFlood(t *testing.T) {
	var f Flood
	for i, c := range []struct {
		begun, lived float64
		is           bool
		known        bool // the conversion
	}{
		{31, 0, false, false},
		{1000, 510, false, true},
		{1000, 400, true, true},
		{10000, 6500, true, true},
		{10000, 6500, true, true},
		{10000, 8000, false, true},
		{10000, 6500, false, true},
		{1e6, 0, true, true},
	} {
		f.Count(c.begun, c.lived)
		if is := f.Step(); is != c.is || f.Is() != c.is {
			t.Errorf("step %d: flood %v", i, is)
		}
		if _, known := f.Conversion(); known != c.known {
			t.Errorf("step %d: conversion known: %v", i, known)
		}
	}
	for range 20 { // nothing comes
		f.Step()
	}
	if f.Is() {
		t.Error("an idle service stays in a flood")
	}
	if _, known := f.Conversion(); known {
		t.Error("an idle service has a conversion")
	}
}
