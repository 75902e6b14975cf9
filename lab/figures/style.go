package figures

import (
	"cmp"
	"hash/fnv"
	"image/color"
	"strings"

	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"proffer/lab/sim"
	_ "proffer/lab/sim/policies"
)

// Colours of Okabe and Ito (jfly.uni-koeln.de/color, 2008), which most
// colour-blind readers tell apart, without the yellow that white paper
// swallows. The dashes tell the rest apart, in print too.
var (
	black      = color.RGBA{0x00, 0x00, 0x00, 0xff}
	orange     = color.RGBA{0xe6, 0x9f, 0x00, 0xff}
	skyBlue    = color.RGBA{0x56, 0xb4, 0xe9, 0xff}
	green      = color.RGBA{0x00, 0x9e, 0x73, 0xff}
	blue       = color.RGBA{0x00, 0x72, 0xb2, 0xff}
	vermillion = color.RGBA{0xd5, 0x5e, 0x00, 0xff}
	purple     = color.RGBA{0xcc, 0x79, 0xa7, 0xff}

	solid   = []vg.Length{}
	dashed  = []vg.Length{7, 3}
	dotted  = []vg.Length{1.5, 2.5}
	dashDot = []vg.Length{8, 2.5, 1.5, 2.5}

	longDash   = []vg.Length{14, 3}
	shortDash  = []vg.Length{4, 2}
	dashDotDot = []vg.Length{8, 2, 1.5, 2, 1.5, 2}
	longShort  = []vg.Length{12, 2.5, 4, 2.5}
)

type look struct {
	color color.Color
	dash  []vg.Length
}

// Words of a look, as sim.Spelling has them.
var (
	colours = map[string]color.Color{
		"black": black, "orange": orange, "sky-blue": skyBlue, "green": green, "blue": blue, "vermillion": vermillion, "purple": purple,
	}
	dashes = map[string][]vg.Length{"solid": solid, "dashed": dashed, "dotted": dotted, "dash-dot": dashDot}
)

// bench are the looks of the bench's curves: a colour for each way to dispatch,
// and one for each floor; and that of a rate of requests, which is no policy's.
func bench(name string) string {
	return map[string]string{
		"hunt":            "blue solid",
		"hunt-insert":     "blue dash-dot",
		"hunt-ipv4":       "blue dotted",
		"single-insert":   "black dash-dot",
		"single-ipv4":     "black dotted",
		"floor: line":     "green solid",
		"floor: hash":     "orange solid",
		"floor: lru-hash": "vermillion solid",
		"rate":            "black dash-dot",
	}[name]
}

// known is the look that a policy's file, or bench, gives a name.
func known(name string) (look, bool) {
	words := strings.Fields(cmp.Or(sim.Drawn(name), bench(name)))
	if len(words) != 2 || colours[words[0]] == nil || dashes[words[1]] == nil {
		return look{}, false
	}
	return look{colours[words[0]], dashes[words[1]]}, true
}

// spare are the looks of all other names, of which a name's hash picks one. No
// known name has their dashes.
func spare() []look {
	var all []look
	for _, dash := range [][]vg.Length{longDash, shortDash, dashDotDot, longShort} {
		for _, c := range []color.Color{green, orange, skyBlue, purple, blue, vermillion} {
			all = append(all, look{c, dash})
		}
	}
	return all
}

// lines gives each name its line. A policy looks the same in every figure,
// unless a figure already holds another with the same look: then it takes the
// next that is free.
func lines(names []string) []draw.LineStyle {
	looks, taken := spare(), map[int]bool{}
	styles := make([]draw.LineStyle, len(names))
	for i, name := range names {
		l, ok := known(name)
		if !ok {
			at := hash(name) % len(looks)
			for n := 0; taken[at] && n < len(looks); n++ {
				at = (at + 1) % len(looks)
			}
			taken[at], l = true, looks[at]
		}
		styles[i] = draw.LineStyle{Color: l.color, Width: 1.6, Dashes: l.dash}
	}
	return styles
}

func hash(name string) int {
	h := fnv.New32a()
	h.Write([]byte(name))
	return int(h.Sum32() >> 1)
}
