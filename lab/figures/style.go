package figures

import (
	"hash/fnv"
	"image/color"

	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
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

// known are the looks of the policies that most figures show, and of the bench's
// curves: a colour for each way to dispatch, and one for each floor.
func known(name string) (look, bool) {
	l, ok := map[string]look{
		"single":         {black, dashed},
		"hunt:static:4":  {blue, solid},
		"hunt:dynamic":   {vermillion, dashDot},
		"hunt:always":    {purple, dotted},
		"hunt:static:1":  {purple, dashed},
		"hunt:static:2":  {skyBlue, dashed},
		"hunt:static:8":  {green, dashDot},
		"hunt:static:16": {orange, dotted},

		"guided":             {green, solid},
		"guided:8":           {green, dotted},
		"learned":            {vermillion, solid},
		"learned:ages":       {vermillion, dashed},
		"learned:ages:fixed": {vermillion, dotted},
		"lsq":                {skyBlue, solid},
		"sed":                {orange, solid},
		"gsq2":               {skyBlue, dashDot},
		"ecmp":               {skyBlue, dotted},
		"wcmp":               {blue, dashed},
		"awcmp":              {blue, dashDot},
		"rr":                 {orange, dashed},
		"wrr-feedback":       {purple, dashDot},
		"jiq":                {purple, solid},
		"jsq":                {blue, dotted},
		"oracle":             {black, dotted},
		"oraclef":            {black, solid},

		"hunt":            {blue, solid},
		"hunt-insert":     {blue, dashDot},
		"hunt-ipv4":       {blue, dotted},
		"single-insert":   {black, dashDot},
		"single-ipv4":     {black, dotted},
		"floor: line":     {green, solid},
		"floor: hash":     {orange, solid},
		"floor: lru-hash": {vermillion, solid},
	}[name]
	return l, ok
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
