package traffic

import (
	"crypto/sha256"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
)

// Bytes are the n bytes that GET /bytes/n answers. They look random, so that a
// segment lost, doubled or misplaced on the way cannot go unnoticed.
func Bytes(n int64) io.Reader {
	return io.LimitReader(rand.NewChaCha8([32]byte{}), n)
}

func sendBytes(w http.ResponseWriter, r *http.Request) {
	n, err := strconv.ParseInt(r.PathValue("n"), 10, 64)
	if err != nil || n < 0 {
		http.Error(w, fmt.Sprintf("/bytes/%s: not a number of bytes", r.PathValue("n")), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Length", strconv.FormatInt(n, 10))
	// An error means that the client has left: no peer to report to.
	_, _ = io.Copy(w, Bytes(n))
}

func digestBytes(w http.ResponseWriter, r *http.Request) {
	hash := sha256.New()
	n, err := io.Copy(hash, r.Body)
	if err != nil {
		http.Error(w, fmt.Sprintf("read body: %v after %d bytes", err, n), http.StatusBadRequest)
		return
	}
	fmt.Fprintf(w, "%x %d\n", hash.Sum(nil), n)
}
