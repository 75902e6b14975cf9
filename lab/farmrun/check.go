package farmrun

import (
	"errors"
	"fmt"
	"os/exec"
	"strings"
)

// OrList names what a flag takes.
func OrList(names []string) string {
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " or " + names[last]
}

// Installed names the missing ones of programs, and the Debian packages that have them.
func Installed(packages map[string]string) error {
	var errs []error
	for program, of := range packages {
		if _, err := exec.LookPath(program); err != nil {
			errs = append(errs, fmt.Errorf("%s is missing: apt-get install %s", program, of))
		}
	}
	return errors.Join(errs...)
}
