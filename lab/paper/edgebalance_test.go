package paper

import (
	"bytes"
	"context"
	"os"
	"testing"
)

// TestEdgeBalanceFigures draws sketches of them twice: they can be drawn, and are
// functions of their options.
func TestEdgeBalanceFigures(t *testing.T) {
	t.Parallel()
	list, err := Named([]string{"edgebalance-3", "edgebalance-4", "edgebalance-5", "edge-lives"})
	if err != nil {
		t.Fatal(err)
	}
	var tables [2][]byte
	for i := range tables {
		files, err := Draw(context.Background(), list, Options{Seeds: 2, Quick: true}, t.TempDir(), func(Progress) {})
		if err != nil {
			t.Fatal(err)
		}
		if len(files) != 12 {
			t.Fatalf("files %v: want SVG, PNG and CSV of four figures", files)
		}
		for _, file := range files {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			tables[i] = append(tables[i], data...)
		}
	}
	if !bytes.Equal(tables[0], tables[1]) {
		t.Error("drawn twice, the figures differ")
	}
}
