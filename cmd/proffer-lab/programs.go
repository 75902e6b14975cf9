package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// findProffer returns the path of the program that experiments run as daemons:
// that beside this one, so that both are of one build, or else that in $PATH.
func findProffer() (string, error) {
	own, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("find this program: %w", err)
	}
	return profferBeside(filepath.Dir(own))
}

func profferBeside(dir string) (string, error) {
	// LookPath of a path with a slash only checks that it can be run.
	if beside, err := exec.LookPath(filepath.Join(dir, "proffer")); err == nil {
		return beside, nil
	}
	path, err := exec.LookPath("proffer")
	if err != nil {
		return "", fmt.Errorf("the program proffer, which has the daemons, is neither in %s nor in $PATH: `make build` puts both programs into build/", dir)
	}
	return path, nil
}
