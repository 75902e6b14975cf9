package weights

// Flood judges by how many new flows come to life whether most SYNs are forged. Each step counts half
// as much as the next. The zero Flood is ready for use.
type Flood struct {
	begun, lived float64
	is           bool
}

const (
	fewBegun  = 32  // flows; of fewer there is no flood
	floodFrom = 0.5 // the part that comes to life below which there is a flood
	floodTo   = 0.7 // and above which there is none, again
)

// Count adds flows that began, and flows that came to life.
func (f *Flood) Count(begun, lived float64) {
	f.begun += begun
	f.lived += lived
}

// Step ends a step, and reports whether there is a flood.
func (f *Flood) Step() bool {
	limit := floodFrom
	if f.is {
		limit = floodTo
	}
	f.is = f.begun >= fewBegun && f.lived < limit*f.begun
	f.begun, f.lived = f.begun/2, f.lived/2
	return f.is
}

// Is reports whether there was a flood at the last step.
func (f *Flood) Is() bool { return f.is }

// Conversion is the part of the latest flows that came to life; false: there are too few.
func (f *Flood) Conversion() (part float64, known bool) {
	if f.begun < fewBegun/2 { // halved since
		return 0, false
	}
	return min(f.lived/f.begun, 1), true
}
