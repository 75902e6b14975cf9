package experiment

import (
	"encoding/csv"
	"fmt"
	"os"
	"path/filepath"
)

// saveRows writes a CSV file into dir, which is made if it is missing, and
// returns its path.
func saveRows(dir, name string, columns []string, rows [][]string) (string, error) {
	path := filepath.Join(dir, name)
	if err := makeFolder(dir); err != nil {
		return path, err
	}
	f, err := os.Create(path)
	if err != nil {
		return path, fmt.Errorf("write rows: %w", err)
	}
	defer f.Close()
	w := csv.NewWriter(f)
	if err := w.WriteAll(append([][]string{columns}, rows...)); err != nil {
		return path, fmt.Errorf("write rows to %s: %w", path, err)
	}
	return path, f.Close()
}

func makeFolder(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make the output folder: %w", err)
	}
	return nil
}
