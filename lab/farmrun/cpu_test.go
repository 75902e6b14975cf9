package farmrun

import (
	"os"
	"path/filepath"
	"testing"
)

func TestReadCPU(t *testing.T) {
	path := filepath.Join(t.TempDir(), "stat")
	read := func(text string) (CPUTime, error) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return ReadCPU(path)
	}
	before, err := read("cpu  10 20 30 400 50 1 2 3 4 5\ncpu0 1 1 1 1 1 1 1 1 1 1\n")
	if err != nil || before.Busy != 66 || before.all != 516 || before.Softirq != 2 {
		t.Errorf("%+v, %v; want 66 of 516, 2 of them softirq", before, err)
	}
	after, err := read("cpu  35 20 30 475 50 1 2 3 4 5\n")
	if err != nil || after.Share(before) != 0.25 {
		t.Errorf("%v, %v; want a quarter", after.Share(before), err)
	}
	if before.Share(before) != 0 {
		t.Error("no time at all is busy")
	}
	for _, bad := range []string{"", "cpu 1 2 3\n", "cpu0 1 2 3 4 5 6 7 8\n", "cpu  1 2 3 4 5 6 seven 8\n"} {
		if c, err := read(bad); err == nil {
			t.Errorf("%q is read as %+v", bad, c)
		}
	}
}

func TestTCPValue(t *testing.T) {
	const text = "Ip: Forwarding\nIp: 1\nTcp: ActiveOpens InSegs OutSegs\nTcp: 3 77 5\nUdp: InDatagrams\nUdp: 9\n"
	if n, err := tcpValue(text, "InSegs"); err != nil || n != 77 {
		t.Errorf("%d, %v; want 77", n, err)
	}
	for _, bad := range []string{"", "Tcp: InSegs\n", "Tcp: OutSegs\nTcp: 5\n", "Tcp: InSegs\nTcp: many\n"} {
		if n, err := tcpValue(bad, "InSegs"); err == nil {
			t.Errorf("%q is read as %d", bad, n)
		}
	}
}
