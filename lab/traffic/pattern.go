package traffic

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
	at    int64 // right so far
}

// chunk is the size of a transfer's reads and writes.
const chunk = 64 << 10

func newPattern(name string) *pattern {
	return &pattern{bytes: rand.NewChaCha8(sha256.Sum256([]byte(name)))}
}

// check compares the bytes received with the pattern.
func (p *pattern) check(got []byte) error {
	if cap(p.want) < len(got) {
		p.want = make([]byte, len(got))
	}
	want := p.want[:len(got)]
	_, _ = p.bytes.Read(want) // never fails, never short
	if bytes.Equal(got, want) {
		p.at += int64(len(got))
		return nil
	}
	for i := range got {
		if got[i] != want[i] {
			return fmt.Errorf("byte %d is wrong", p.at+int64(i))
		}
	}
	return nil
}

// fill makes the next bytes of the stream.
func (p *pattern) fill(buffer []byte) { _, _ = p.bytes.Read(buffer) }
