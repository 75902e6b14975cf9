package paper

import (
	"fmt"
	"math"
	"regexp"
	"strings"

	"proffer/lab/figures"
	"proffer/lab/tables"
)

// statement is what a paper's text says, and where ours stands: in a figure's notes and numbers.
type statement struct {
	figure    string
	shows     string
	published string

	// ours is text with places: [/pattern/] is what the pattern's group finds in a note, [curve;at] a number
	// of the column, [±curve;at] the same with half its interval. The number is printed times as large.
	ours   string
	column string
	times  float64
	digits int
}

var placed = regexp.MustCompile(`\[(/.*?/|[^\]]*)\]`)

// in fills the places from the figure.
func (s statement) in(f *figures.Figure) string {
	return placed.ReplaceAllStringFunc(s.ours, func(place string) string {
		place = place[1 : len(place)-1]
		if pattern, is := strings.CutPrefix(place, "/"); is {
			for _, note := range f.Notes() {
				if m := regexp.MustCompile(strings.TrimSuffix(pattern, "/")).FindStringSubmatch(note); m != nil {
					return m[1]
				}
			}
			return absent
		}
		place, both := strings.CutPrefix(place, "±")
		curve, at, _ := strings.Cut(place, ";")
		value, half := f.Value(curve, at, s.column)
		if math.IsNaN(value) {
			return absent
		}
		text := fmt.Sprintf("%.*f", s.digits, s.times*value)
		if both {
			text += fmt.Sprintf(" ± %.*f", s.digits, s.times*half)
		}
		return text
	})
}

// Stated is a table of what the papers' texts say of these figures, and ours beside it.
type Stated struct {
	*tables.Table
	Missing []string // statements of which the figure has not all, as a sketch
}

// NewStated is without a figure, yet.
func NewStated() *Stated { return &Stated{Table: tables.Left("figure", "shows", "published", "ours")} }

// Draws adds the statements about a figure that is drawn.
func (s *Stated) Draws(name string, f *figures.Figure) {
	for _, one := range statements {
		if one.figure != name {
			continue
		}
		ours := one.in(f)
		if strings.Contains(ours, absent) {
			s.Missing = append(s.Missing, name+", "+one.shows)
		}
		s.Add(one.figure, one.shows, one.published, ours)
	}
}

// absent stands where a figure has no such number or note.
const absent = "?"

// statements are in the order of the papers.
var statements = []statement{
	{"6lb-7", "fewer broken flows with lists of two", "up to 44 %, k = 8", "[±ours: fewer with 2 choices;8] %, k = 8; greatest [ours: fewer with 2 choices;max]", "fewer_with_2_choices_percent", 1, 1},
	{"6lb-8a", "SR8 beats SR4", "λ ≥ .983", "λ ≥ [/ours: from ([0-9.]+)/]", "", 0, 0},
	{"6lb-8f", "servers for p90 ≤ 6, of 100", "71", "[/ours: (.*)/]", "", 0, 0},
	{"6lb-9", "wrongful rejections, SR4, λ ≤ .9", "< 4.5 %", "[hunt:static:4;0.9] %", "wrongful_rejections_percent", 1, 2},
	{"6lb-10a", "mean, single ÷ SR4, ρ = .87", "up to 2.3", "[/ours there: (.*)/]", "", 0, 0},
	{"6lb-10a", "SRdyn close to the best static, ρ = .87", "\"close\"", "[±hunt:dynamic;0.87] ms, SR4 [±hunt:static:4;0.87]", "mean_response_time_s", 1e3, 0},
	{"6lb-10a", "mean with single, ρ = .71", "0.58 s", "[±single;0.71] s", "mean_response_time_s", 1, 3},
	{"6lb-11a", "servers that serve as 48 with single", "40", "[/; ours: (.*)/]", "", 0, 0},
	{"6lb-11b", "SR4, tables of 64, 128, 1024 and 65536", "flat above 1024", "[±hunt:static:4;64], [±hunt:static:4;128], [±hunt:static:4;1024], [±hunt:static:4;65536] ms", "mean_s", 1e3, 0},
	{"6lb-11b", "longer than single at M ≤ 128", "words", "single [±single;64] ms: no", "mean_s", 1e3, 0},
	{"6lb-11c", "accepted by the second, SR4, ρ = .71", "38 %", "[/second, .*ours: (.*)/]", "", 0, 0},
	{"6lb-11c", "SYN-ACK later than with single, median", "69 µs", "[/ours: ([0-9.]+ hops)/]", "", 0, 0},
	{"6lb-11d", "extra resets, single and SR8", "≤ 4 %, ≤ 2 %", "≤ [±single;max] %, ≤ [±hunt:static:8;max] %", "extra_resets_percent", 1, 1},
	{"6lb-11e", "order at ρ = .87", "SRdyn < feedback < RR < SC", "[±hunt:dynamic;0.87] < [±wrr-feedback;0.87] < [±rr;0.87] < [±single;0.87] ms", "mean_response_time_s", 1e3, 0},
	{"6lb-11e", "SRdyn and feedback at ρ = .91", "SRdyn < feedback", "[±hunt:dynamic;0.91], [±wrr-feedback;0.91] ms", "mean_response_time_s", 1e3, 0},
	{"6lb-11f", "constant service", "RR, then SRdyn, then SC", "[rr;0] < [hunt:dynamic;0] < [single;0] ms", "mean_response_time_s", 1e3, 0},
	{"6lb-11f", "skewed service, deviation .2 s", "SRdyn best", "[±hunt:dynamic;0.2], RR [±rr;0.2], SC [±single;0.2] ms", "mean_response_time_s", 1e3, 0},
	{"srlb-2", "mean, RR ÷ SR4, ρ = .88", "up to 2.3", "[/ours there: (.*)/]", "", 0, 0},
	{"hlb-2", "WCMP and SED best if all is seen and weights are right", "words", "[wcmp;sees 100 %, weights 2:1], [sed;sees 100 %, weights 2:1]; LSQ [lsq;sees 100 %, weights 2:1], ECMP [ecmp;sees 100 %, weights 2:1]", "weighted_duration", 1, 1},
	{"hlb-2", "LSQ and SED beat WCMP if half is seen", "words", "[lsq;sees 50 %, weights 2:1], [sed;sees 50 %, weights 2:1], WCMP [wcmp;sees 50 %, weights 2:1]", "weighted_duration", 1, 1},
	{"hlb-2", "wrong weights harm WCMP and SED", "words", "[wcmp;sees 100 %, weights 1:2] and [sed;sees 100 %, weights 1:2]", "weighted_duration", 1, 1},
	{"hlb-10", "p90 below LSQ and SED, 88.5 %", "24.64 and 25.59 %", "[/learned:ages below .*ours: (.*)/]", "", 0, 0},
	{"hlb-10", "the same of learned:completed", "–", "[/learned:completed: (.*); guided/]", "", 0, 0},
	{"hlb-12a", "1:4, p90 at 70 %: SED and HLB best", "words", "SED [sed;1:4], HLB [learned:ages;1:4], LSQ [lsq;1:4] s", "p90_s_1", 1, 2},
	{"hlb-12a", "… at 90 %: LSQ better than SED", "words", "LSQ [lsq;1:4], SED [sed;1:4], HLB [learned:ages;1:4] s", "p90_s_2", 1, 2},
	{"hlb-12b", "SED, strong ÷ weak, 1:4, 90 %", "12.14 times the workload", "[/ours: (.*)/] times the requests", "", 0, 0},
	{"hlb-13", "8 LBs, p90: two choices harm LSQ and HLB", "words", "[lsq;8 LBs] → [lsq2;8 LBs] s, [learned:ages;8 LBs] → [learned2:ages;8 LBs] s", "p90_s", 1, 2},
	{"hlb-13", "two choices help SED with 8 LBs only", "words", "[sed;8 LBs] → [sed2;8 LBs] s; 4 LBs [sed;4 LBs] → [sed2;4 LBs] s", "p90_s", 1, 2},
	{"hlb-14", "SED's requests to the strong, 8 LBs, 90 %", "74.2 %", "[/ours: (.*)/]", "", 0, 0},
	{"hlb-15", "scores follow the work left, HLB better than SED", "drawn", "correlation [/learned:ages: (.*)/], SED [/with sed: (.*)/]", "", 0, 0},
	{"hlb-17", "updates every .1 and 5 s, p90: AWCMP suffers, HLB hardly", "words", "[awcmp;0.1] → [awcmp;5] s, [learned:ages;0.1] → [learned:ages;5] s", "p90_s", 1, 2},
	{"hlb-18a", "adaptive R better than HLB-FIX for a mean of 1 s, p90", "words", "[±learned:ages;1 s], fixed [±learned:ages:fixed;1 s] s", "p90_s", 1, 2},
	{"hlb-18b", "the gain at 60 s differs, means .25, .5 and 1 s", "words", "[±mean 0.25 s;60], [±mean 0.5 s;60], [±mean 1 s;60]", "kalman_gain", 1, 4},
	{"hlb-19", "p90 at 90 %, 65536 → 512 buckets: LSQ and SED harmed more than HLB", "words", "LSQ [lsq;65536] → [lsq;512], SED [sed;65536] → [sed;512], HLB [learned:ages;65536] → [learned:ages;512] s", "p90_at_90_s", 1, 2},
	{"hlb-22", "p90 of CPU 1, .75, .5, .25: HLB best", "words", "HLB [learned:ages;pure CPU], [learned:ages;CPU .75, IO .25], [learned:ages;CPU .5, IO .5], [learned:ages;CPU .25, IO .75] s", "p90_s", 1, 2},
	{"hlb-22", "… LSQ", "words", "[lsq;pure CPU], [lsq;CPU .75, IO .25], [lsq;CPU .5, IO .5], [lsq;CPU .25, IO .75] s; guided at .5 [guided;CPU .5, IO .5]", "p90_s", 1, 2},
	{"hlb-23", "strong ÷ weak, before and after other work", "alike after", "[learned:ages;29], [learned:ages;59]", "weights_ratio", 1, 2},
	{"hlb-23", "mean after it: HLB best", "words", "HLB [learned:ages;59], LSQ [lsq;59], SED [sed;59], learned:completed [learned:completed;59] s", "mean_s", 1, 2},
}
