package responder

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"math/rand/v2"
)

// pattern is an endless stream that looks random and is each name's own: bytes
// lost, doubled, misplaced or of another stream cannot go unnoticed.
type pattern struct {
	bytes io.Reader
	want  []byte
	At    int64 // right so far
}

// Chunk is the size of a transfer's reads and writes.
const Chunk = 64 << 10

func NewPattern(name string) *pattern {
	return &pattern{bytes: rand.NewChaCha8(sha256.Sum256([]byte(name)))}
}

// Check compares the bytes received with the pattern.
func (p *pattern) Check(got []byte) error {
	if cap(p.want) < len(got) {
		p.want = make([]byte, len(got))
	}
	want := p.want[:len(got)]
	_, _ = p.bytes.Read(want) // never fails, never short
	if bytes.Equal(got, want) {
		p.At += int64(len(got))
		return nil
	}
	for i := range got {
		if got[i] != want[i] {
			return fmt.Errorf("byte %d is wrong", p.At+int64(i))
		}
	}
	return nil
}

// Fill makes the next bytes of the stream.
func (p *pattern) Fill(buffer []byte) { _, _ = p.bytes.Read(buffer) }
