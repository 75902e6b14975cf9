package schema

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
)

// Error is a mistake in a file. Lines and columns count from 1, columns in
// characters as editors do. Key is the path to the value, such as
// "services[0].port"; it is empty when the file as a whole is wrong.
type Error struct {
	File         string
	Line, Column int
	Key          string
	Problem      string
}

func (e *Error) Error() string {
	at := fmt.Sprintf("%s:%d:%d: ", e.File, e.Line, e.Column)
	if e.Key != "" {
		at += e.Key + ": "
	}
	return at + e.Problem
}

// maxErrors keeps the answer to a hopeless file on one screen.
const maxErrors = 20

// join orders mistakes as the file has them and makes a single error of them.
func join(mistakes []*Error, most int) error {
	slices.SortStableFunc(mistakes, func(a, b *Error) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	var all []error
	for i, mistake := range mistakes {
		if i == most {
			all = append(all, fmt.Errorf("%s: and %d more errors", mistake.File, len(mistakes)-i))
			break
		}
		all = append(all, mistake)
	}
	return errors.Join(all...)
}
