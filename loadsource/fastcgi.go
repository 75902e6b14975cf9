package loadsource

import (
	"encoding/binary"
	"errors"
	"io"
)

// Types of FastCGI 1.0's records (specification, 8).
const (
	cgiBegin  = 1
	cgiEnd    = 3
	cgiParams = 4
	cgiStdin  = 5
	cgiStdout = 6
	cgiStderr = 7
)

const (
	cgiVersion   = 1
	cgiResponder = 1
	cgiHeader    = 8
)

var errFastCGI = errors.New("the answer is not FastCGI's")

// fastCGI asks for a page by GET and returns the answer with its header.
func fastCGI(conn io.ReadWriter, path, query string) ([]byte, error) {
	var params []byte
	for _, p := range [][2]string{
		{"REQUEST_METHOD", "GET"}, {"SCRIPT_NAME", path}, {"SCRIPT_FILENAME", path}, {"QUERY_STRING", query}, {"REQUEST_URI", path + "?" + query},
	} {
		params = append(binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(params, length(p[0])), length(p[1])), p[0]+p[1]...)
	}
	b := cgiRecord(nil, cgiBegin, []byte{0, cgiResponder, 0, 0, 0, 0, 0, 0})
	b = cgiRecord(cgiRecord(b, cgiParams, params), cgiParams, nil)
	if _, err := conn.Write(cgiRecord(b, cgiStdin, nil)); err != nil {
		return nil, err
	}
	return cgiAnswer(conn)
}

// length is that of a name or value, in the form of four bytes.
func length(s string) uint32 { return uint32(len(s)) | 1<<31 }

// cgiRecord appends a record of request 1.
func cgiRecord(b []byte, kind byte, content []byte) []byte {
	n := len(content)
	return append(append(b, cgiVersion, kind, 0, 1, byte(n>>8), byte(n), 0, 0), content...)
}

// cgiAnswer joins the output of request 1 until its end.
func cgiAnswer(r io.Reader) (out []byte, err error) {
	var head [cgiHeader]byte
	content := make([]byte, 1<<16+1<<8)
	for read := 0; read <= longestAnswer; read += cgiHeader {
		if _, err := io.ReadFull(r, head[:]); err != nil {
			return nil, err
		}
		n := int(binary.BigEndian.Uint16(head[4:]))
		if head[0] != cgiVersion || binary.BigEndian.Uint16(head[2:]) != 1 {
			return nil, errFastCGI
		}
		if _, err := io.ReadFull(r, content[:n+int(head[6])]); err != nil {
			return nil, err
		}
		switch head[1] {
		case cgiEnd:
			return out, nil
		case cgiStdout:
			out = append(out, content[:n]...)
		case cgiStderr:
		default:
			return nil, errFastCGI
		}
		read += n + int(head[6])
	}
	return nil, errLong
}
