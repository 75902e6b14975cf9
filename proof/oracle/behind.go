package oracle

import "encoding/binary"

// Options before a transport header: at most so many headers and bytes.
const (
	mostHeaders = 8
	mostOptions = 512
)

// isExtension: a header of IANA's list behind which an upper-layer header can follow and be
// read (not ESP), or that of a fragment.
func isExtension(next byte) bool {
	switch next {
	case 0, 43, 44, 51, 60, 135, 139, 140:
		return true
	}
	return false
}

// behind walks over the options in front of b: over the rest of an IPv4 header of so many
// bytes, or the extension headers behind an IPv6 header. It returns the protocol behind
// them and their bytes, or why there is none. A quote shows the ports of a fragment's
// beginning.
func behind(six bool, next byte, rest int, b []byte, quoted bool) (protocol byte, bytes int, bad Reason) {
	if !six {
		return next, rest, behind4(b, rest)
	}
	for i := 0; isExtension(next); i++ {
		if i == mostHeaders || len(b) < bytes+8 {
			return next, 0, ExtHeader
		}
		head := b[bytes:]
		length := 8 + 8*int(head[1])
		switch next {
		case 0: // hop-by-hop options are first (RFC 8200 §4.1)
			if i > 0 {
				return next, 0, ExtHeader
			}
		case 60:
		case 44:
			word := binary.BigEndian.Uint16(head[2:])
			if word&0xfff8 != 0 || word&1 != 0 && !quoted {
				return next, 0, ExtHeader
			}
			length = 8
		case 43:
			return next, 0, SourceRoute
		default:
			return next, 0, ExtHeader
		}
		next, bytes = head[0], bytes+length
		if bytes > min(len(b), mostOptions) {
			return next, 0, ExtHeader
		}
	}
	return next, bytes, ""
}

// behind4 looks for a source route among the options of an IPv4 header (RFC 791 §3.1).
func behind4(b []byte, rest int) Reason {
	if rest > len(b) {
		return ExtHeader
	}
	for options := b[:rest]; len(options) > 0 && options[0] != 0; {
		switch {
		case options[0] == 131 || options[0] == 137:
			return SourceRoute
		case options[0] == 1:
			options = options[1:]
		case len(options) < 2 || options[1] < 2 || int(options[1]) > len(options):
			return ExtHeader
		default:
			options = options[options[1]:]
		}
	}
	return ""
}
