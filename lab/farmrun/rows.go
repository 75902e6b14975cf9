package farmrun

import (
	"encoding/csv"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"proffer/lab/traffic"
)

// SaveRows writes a CSV file into dir, which is made if it is missing, and
// returns its path.
func SaveRows(dir, name string, columns []string, rows [][]string) (string, error) {
	path := filepath.Join(dir, name)
	if err := MakeFolder(dir); err != nil {
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

func MakeFolder(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make the output folder: %w", err)
	}
	return nil
}

func WriteRequests(path string, rows []traffic.Row) error {
	f, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("write rows: %w", err)
	}
	defer f.Close()
	if err := traffic.WriteRows(f, rows); err != nil {
		return fmt.Errorf("write rows to %s: %w", path, err)
	}
	return f.Close()
}

func Seconds(d time.Duration) string { return strconv.FormatFloat(d.Seconds(), 'f', 6, 64) }
