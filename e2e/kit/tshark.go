package kit

import (
	"os/exec"
	"strconv"
	"strings"
	"testing"
)

// Judge lets tshark decode every packet of a capture: no expert warning, no
// error, and every checksum there and good.
func Judge(t *testing.T, file string, atLeast int) {
	t.Helper()
	packets, segments := 0, 0
	for _, d := range Dissect(t, file) {
		packets++
		if strings.HasSuffix(d.Protocols, ":tcp") || strings.Contains(d.Protocols, ":tcp:") {
			segments++
		}
		if faults := d.Faults(); len(faults) > 0 {
			t.Errorf("tshark finds fault with packet %s on %s (%s): %q", d.Number, d.Link, d.Protocols, faults)
		}
	}
	if segments < atLeast {
		t.Fatalf("tshark decodes %d packets and finds TCP in %d of them, want at least %d", packets, segments, atLeast)
	}
}

// dissection is tshark's view of one packet; a field that occurs more than
// once has all its values, joined.
type dissection struct {
	Number, Link, Protocols, status, checksum, icmpStatus, severity, message string
}

const join = "\x1f" // between the values of a field

// Faults lists what is wrong with a packet: severities of PI_WARN and PI_ERROR
// (epan/proto.h), checksums that were not verified or not good. Two are not
// ours, but the endpoints' kernels':
//   - they write 0xffff where a TCP checksum comes out as 0 (skb_checksum_help);
//     equal in RFC 1624, not to tshark;
//   - on a slow machine they send again what was not lost (RFC 2883).
func (d dissection) Faults() (found []string) {
	equal := d.checksum == "0xffff" && strings.Contains(d.message, "0xffff instead of 0x0000")
	messages := strings.Split(d.message, join)
	for i, severity := range strings.Split(d.severity, join) {
		const warning = 0x600000
		if n, _ := strconv.ParseUint(severity, 0, 64); n < warning {
			continue
		}
		if what := messages[i]; what != "D-SACK Sequence" && !(equal && strings.HasPrefix(what, "TCP Checksum")) {
			found = append(found, what)
		}
	}
	tcp := strings.Contains(d.Protocols, ":tcp")
	if good := "1"; !equal && (tcp || d.status != "") && d.status != good {
		found = append(found, "TCP checksum status "+d.status)
	}
	if strings.Trim(d.icmpStatus, "1"+join) != "" {
		found = append(found, "ICMPv6 checksum status "+d.icmpStatus)
	}
	if strings.Contains(d.Protocols, "malformed") {
		found = append(found, "malformed")
	}
	return found
}

// Dissect decodes all packets.
//
// The analysis of sequence numbers is off: in one file of many links every
// packet appears on each link it took, plain and encapsulated, which the
// analysis can only call retransmissions and duplicates. A link alone would not
// do either: the LB's sees one direction of a connection. For the same reason
// streams are not put together, and what TCP carries is data: tshark would guess at
// pieces of files, and by the client's port.
func Dissect(t *testing.T, file string) []dissection {
	t.Helper()
	args := []string{"-r", file, "-n", "-T", "fields", "-E", "separator=|", "-E", "aggregator=" + join,
		"-o", "tcp.check_checksum:TRUE", "-o", "udp.check_checksum:TRUE",
		"-o", "tcp.analyze_sequence_numbers:FALSE", "-o", "tcp.desegment_tcp_streams:FALSE", "-d", "tcp.port==0-65535,data"}
	for _, field := range []string{"frame.number", "frame.interface_name", "frame.protocols", "tcp.checksum.status",
		"tcp.checksum", "icmpv6.checksum.status", "_ws.expert.severity", "_ws.expert.message"} {
		args = append(args, "-e", field)
	}
	cmd := exec.Command(Program(t, "tshark"), args...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("tshark: %v: %s", err, stderr.String())
	}
	var all []dissection
	for line := range strings.Lines(string(out)) {
		f := strings.SplitN(strings.TrimSuffix(line, "\n"), "|", 8)
		if len(f) != 8 {
			t.Fatalf("tshark says %q", line)
		}
		all = append(all, dissection{f[0], f[1], f[2], f[3], f[4], f[5], f[6], f[7]})
	}
	return all
}
