package lines_test

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"proffer/dataplane/objects"
	"proffer/proof/machine"
	"proffer/proof/rig"
)

// spot is where a flow's entry may be: its primary line and its alternate one.
type spot struct{ primary, alternate uint32 }

// entry is one that is in the table before a race begins.
type entry struct {
	line uint32
	flow int
	word uint64
	age  time.Duration
}

// deed is one call of flow_table.h, insert.h or sweep.h.
type deed struct {
	call string
	flow int // sweep_line: the line
	was  uint64
	word uint64
}

// race is the deeds of two CPUs at the same time, a few each.
type race struct {
	what  string
	spots []spot // of the flows
	has   []entry
	do    [2][]deed
	may   may
}

const (
	mostFlows = 14
	mostDeeds = 3
	raceNow   = 1000 * time.Second
)

// content is a table's content: the word of each flow.
type content [mostFlows]uint64

// ended holds the CPUs' results and the table they left.
type ended struct {
	told [2][mostDeeds]uint64
	left content
}

// moment is all that there is to know of a race between two steps.
type moment struct {
	shared
	cpus [2]runner
}

type runner struct {
	cpu
	busy  bool
	begun int // deeds
	told  [mostDeeds]uint64
}

// track is where a race is run.
type track struct {
	walker
	*race
	*code
	hashes []uint64 // of the flows
	sweep  objects.LBSweep
	start  moment
	first  content
	right  map[ended]bool
	met    map[ended]bool
}

func newTrack(t *testing.T, c *code, r *race) *track {
	t.Helper()
	k := &track{walker: newWalker(t), race: r, code: c, hashes: hashesAt(r.spots), met: map[ended]bool{}}
	k.sweep = objects.LBSweep{Count: 1}
	k.start.now = uint64(raceNow)
	var used [fewLines]int
	for _, e := range r.has {
		at := k.start.lines[int(e.line)*objects.LineBytes:][8*used[e.line]:]
		used[e.line]++
		fp := rig.FingerprintIn(k.hashes[e.flow])<<rig.DigestShift | uint64((raceNow-e.age)/rig.Unit)&0xffff
		if primary := k.spots[e.flow].primary; e.line != primary {
			fp |= rig.Away
			first := k.start.lines[int(primary)*objects.LineBytes:][:8]
			machine.Write(first, machine.Read(first)+rig.OneDisplaced)
		}
		machine.Write(at[:8], machine.Read(at[:8])&rig.Displaced|fp)
		machine.Write(at[8*objects.LineEntries:][:8], e.word)
		k.start.hints(e.line)[used[e.line]-1] = rig.HintOf(fp)
	}
	var err error
	if k.first, err = k.left(&k.start); err != nil {
		t.Fatal(err)
	}
	k.right = k.serial(r.may)
	return k
}

// hashesAt finds a hash for each flow that leads to its spot.
func hashesAt(spots []spot) (hashes []uint64) {
	n := uint64(0)
	for _, s := range spots {
		for found := false; !found; {
			n++
			fp := n | n<<(objects.HintShift-rig.DigestShift)                     // with a hint
			hash := fp<<rig.DigestShift | uint64(s.primary)<<(rig.DigestShift-2) // of what fingerprints do not hold, the upper bits choose among four lines
			if primary, alternate := rig.LinesOf(hash, fewLines); primary == s.primary && alternate == s.alternate {
				hashes, found = append(hashes, hash), true
			}
		}
	}
	return hashes
}

// next lets a CPU go on, to its next look at the table; false: it has done all.
func (k *track) next(m *moment, i int) bool {
	p := &m.cpus[i]
	if !p.busy {
		if p.begun == len(k.do[i]) {
			return false
		}
		p.cpu, p.busy = k.call(k.do[i][p.begun]), true
		p.begun++
	}
	if !k.step(&p.cpu, &m.shared) {
		told := p.Reg[0]
		switch k.do[i][p.begun-1].call {
		case "flow_change":
			told = uint64(uint8(told)) // a bool
		case "sweep_flow_line":
			told = 0
		}
		p.cpu, p.busy, p.told[p.begun-1] = cpu{}, false, told
	}
	return true
}

func (k *track) call(d deed) cpu {
	if d.call == "sweep_flow_line" {
		p := k.code.call(d.call, uint64(d.flow), atStack)
		if _, err := binary.Encode(p.stack[:argBytes], binary.LittleEndian, k.sweep); err != nil {
			k.Fatal(err)
		}
		return p
	}
	hash := k.hashes[d.flow]
	switch d.call {
	case "flow_find", "flow_seek":
		return k.code.call(d.call, hash, 1)
	case "flow_add":
		return k.code.call(d.call, hash, d.word, d.word)
	}
	return k.code.call(d.call, hash, d.was, d.word)
}

// walk goes through all that can come of a moment: each CPU may be the next.
func (k *track) walk(m *moment) {
	walk(&k.walker, m, func(m *moment, try func(byte, func(*moment) bool)) {
		for i := range m.cpus {
			try(byte(i), func(then *moment) bool { return k.next(then, i) })
		}
	}, func(m *moment, over bool) {
		if over {
			k.met[k.judge(m, k.right)] = true
		}
	})
}

// fair lets the CPUs take turns, one of them some steps ahead: neither is slow enough
// for the other to lose its patience.
func (k *track) fair() {
	right := k.serial(k.may &^ yield)
	for leader := range 2 {
		ahead, more := k.start, true
		for steps := 0; more && !k.Failed(); steps++ {
			m := ahead
			k.turns = slices.Repeat([]byte{byte(leader)}, steps)
			for busy := true; busy; {
				busy = false
				for i := range m.cpus {
					if k.next(&m, i) {
						busy = true
						k.turns = append(k.turns, byte(i))
					}
				}
			}
			k.judge(&m, right)
			more = k.next(&ahead, leader)
		}
	}
}

// judge holds the end of a race against those that are right.
func (k *track) judge(m *moment, right map[ended]bool) ended {
	e := ended{told: [2][mostDeeds]uint64{m.cpus[0].told, m.cpus[1].told}}
	var err error
	if e.left, err = k.left(m); err == nil && !right[e] {
		err = fmt.Errorf("told %x, left %x", e.told, e.left)
	}
	if err != nil {
		k.Errorf("%s: %v", inTurns(k.turns), err)
	}
	return e
}

// inTurns writes the CPUs' turns as "12 of 0, 3 of 1".
func inTurns(turns []byte) string {
	var out []string
	for i := 0; i < len(turns); {
		n := 1
		for i+n < len(turns) && turns[i+n] == turns[i] {
			n++
		}
		out = append(out, fmt.Sprintf("%d of %d", n, turns[i]))
		i += n
	}
	return strings.Join(out, ", ")
}

// left reads the table at rest and holds it against flow_table.h: no entry is half made,
// none is moving, none twice, none where no reader looks for it, each has its hint, and displaced entries are
// counted.
func (k *track) left(m *moment) (c content, err error) {
	var counted [fewLines]int
	for line := range uint32(fewLines) {
		for i := range objects.LineEntries {
			at := m.lines[int(line)*objects.LineBytes:][8*i:]
			fp, word := machine.Read(at[:8]), machine.Read(at[8*objects.LineEntries:][:8])
			if (fp < rig.Away) != (word == 0) || word&rig.WordMoving != 0 {
				return c, fmt.Errorf("line %d, entry %d: fingerprint %x, word %x", line, i, fp, word)
			}
			if m.hints(line)[i] != rig.HintOf(fp) {
				return c, fmt.Errorf("line %d, entry %d: fingerprint %x, hint %x", line, i, fp, m.hints(line)[i])
			}
			if i == 0 {
				counted[line] += int(fp & rig.Displaced / rig.OneDisplaced)
			}
			if word == 0 {
				continue
			}
			f := slices.IndexFunc(k.hashes, func(h uint64) bool { return rig.FingerprintIn(h) == fp>>rig.DigestShift })
			if f >= 0 && line != k.spots[f].primary {
				counted[k.spots[f].primary]--
			}
			if f >= 0 && (fp&rig.Away != 0) != (line != k.spots[f].primary) {
				return c, fmt.Errorf("line %d, entry %d: fingerprint %x of one whose primary line is %d", line, i, fp, k.spots[f].primary)
			}
			if f < 0 || c[f] != 0 || line != k.spots[f].primary && line != k.spots[f].alternate {
				return c, fmt.Errorf("line %d, entry %d: flow %d is there twice, or astray", line, i, f)
			}
			c[f] = word
		}
	}
	if counted != [fewLines]int{} {
		return c, fmt.Errorf("displaced entries counted, less those that are there: %v", counted)
	}
	return c, nil
}
