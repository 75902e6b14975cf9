package farmrun

import (
	"fmt"
	"io"

	"proffer/lab/tables"
)

// Published is a value of the paper's text, or a goal of our own, beside ours.
type Published struct {
	Shows     string `json:"shows"`
	Published string `json:"published"`
	Goal      string `json:"goal,omitempty"`
	Ours      string `json:"ours"`
}

// OfPaper is a value of the paper's text beside ours.
func OfPaper(shows, published, ours string) Published {
	return Published{Shows: shows, Published: published, Ours: ours}
}

func PrintPublished(w io.Writer, all []Published) error {
	if len(all) == 0 {
		return nil
	}
	t := tables.Left("", "published", "here")
	for _, b := range all {
		published := b.Published
		if b.Goal != "" {
			published = "our goal: " + b.Goal
		}
		t.Addf("%s\t%s\t%s", b.Shows, published, b.Ours)
	}
	return t.Print(w)
}

func Percent(part float64) string { return fmt.Sprintf("%.1f %%", 100*part) }
