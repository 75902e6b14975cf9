package results

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"proffer/lab/tables"
)

// shown is a place of a page with a result between two marks.
var shown = regexp.MustCompile(`(?s)<!-- (results/[a-z0-9-]+\.json) -->\n.*?<!-- end -->`)

// Named are the results that a page shows.
func Named(page string) (names []string) {
	for _, m := range shown.FindAllStringSubmatch(page, -1) {
		names = append(names, m[1])
	}
	return names
}

// Render is the page with its results as they are in the files below root. A machine is named where it is
// another than that of the result before.
func Render(root, page string) (string, error) {
	var failed error
	machine := ""
	page = shown.ReplaceAllStringFunc(page, func(place string) string {
		name := shown.FindStringSubmatch(place)[1]
		r, err := Read(filepath.Join(root, name))
		if err != nil {
			failed = err
			return place
		}
		text := r.render(r.Machine != machine)
		machine = r.Machine
		return fmt.Sprintf("<!-- %s -->\n%s<!-- end -->", name, text)
	})
	return page, failed
}

// widest is a line of a table that is shown as it is printed; wider tables are Markdown's.
const widest = 150

// render is a result as a page shows it.
func (r *Result) render(machine bool) string {
	from := []string{"`" + r.Command + "`"}
	if machine {
		from = append(from, r.Machine)
	}
	if r.Date != "" {
		from = append(from, r.Date)
	}
	if r.Commit != "" {
		from = append(from, "commit "+r.Commit)
	}
	var page strings.Builder
	fmt.Fprintf(&page, "%s:\n\n", strings.Join(from, ", "))
	block := "" // as it is printed
	end := func() {
		if block != "" {
			fmt.Fprintf(&page, "```\n%s\n```\n\n", strings.Trim(block, "\n"))
		}
		block = ""
	}
	for _, p := range r.Parts {
		if p.Text != "" {
			block += "\n" + p.Text + "\n"
		}
		text, wide := aligned(p)
		if wide <= widest {
			block += "\n" + text
			continue
		}
		end()
		page.WriteString(markdown(p) + "\n")
	}
	end()
	if r.Missed != "" {
		fmt.Fprintf(&page, "**Missed**: %s.\n\n", strings.ReplaceAll(r.Missed, "\n", "; "))
	}
	return page.String()
}

// grid is a part's headings and rows as texts, and whether a column has numbers alone.
func grid(p tables.Part) (rows [][]string, numeric []bool) {
	var heading []string
	for i, c := range p.Columns {
		heading = append(heading, strings.TrimSpace(c.Name+" "+c.Unit))
		numeric = append(numeric, true)
		for _, row := range p.Rows {
			if i < len(row) && !number(fmt.Sprint(row[i])) {
				numeric[i] = false
			}
		}
	}
	rows = append(rows, heading)
	for _, row := range p.Rows {
		cells := make([]string, max(len(row), len(heading)))
		for i, cell := range row {
			cells[i] = fmt.Sprint(cell)
		}
		rows = append(rows, cells)
	}
	return rows, numeric
}

// number is true of a number, of nothing, and of several with strokes between them.
func number(cell string) bool {
	for part := range strings.SplitSeq(strings.NewReplacer("±", "/", "≤", "", "×", "", ":", "/").Replace(cell), "/") {
		part = strings.TrimSpace(part)
		if _, err := strconv.ParseFloat(part, 64); err != nil && part != "" && part != "–" {
			return false
		}
	}
	return true
}

// aligned is a table for readers of the text, and the length of its longest line.
func aligned(p tables.Part) (text string, wide int) {
	rows, numeric := grid(p)
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for i := range widths {
			widths[i] = max(widths[i], utf8.RuneCountInString(row[i]))
		}
	}
	for _, row := range rows {
		line := ""
		for i, cell := range row {
			gap := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
			if numeric[i] {
				cell = gap + cell
			} else {
				cell += gap
			}
			line += "  " + cell
		}
		if line = strings.TrimRight(line, " "); line != "" {
			line = line[2:]
		}
		wide = max(wide, utf8.RuneCountInString(line))
		text += line + "\n"
	}
	return text, wide
}

// markdown is a table for readers of the page.
func markdown(p tables.Part) string {
	rows, _ := grid(p)
	text := ""
	for i, row := range rows {
		text += "|" + strings.Join(row, "|") + "|\n"
		if i == 0 {
			text += strings.Repeat("|---", len(row)) + "|\n"
		}
	}
	return text
}
