package loadsource

import (
	"bytes"
	"encoding/binary"
	"io"
	"testing"

	"proffer/topo"
)

func putNative64(b []byte, n uint64) { binary.NativeEndian.PutUint64(b, n) }
func putNative32(b []byte, n uint32) { binary.NativeEndian.PutUint32(b, n) }

// memory is a scoreboard's, without a process.
type memory struct{ io.ReaderAt }

func (memory) Close() error { return nil }

// board is a scoreboard with all workers busy.
func board(servers, threads int64) []byte {
	l := layout{servers: servers, threads: threads, worker: workerScores[0]}
	b := make([]byte, l.size())
	putNative64(b, uint64(l.size()))
	putNative32(b[8:], uint32(servers))
	putNative32(b[12:], uint32(threads))
	for i := range servers {
		putNative32(b[l.process(i):], 1000)
		for j := range threads {
			row := b[l.thread(i)+l.worker*j:]
			putNative32(row[workerNumber:], uint32(i*threads+j))
			row[workerStatus] = workerWriting
		}
	}
	return b
}

// sane demands that a reading without an error can be.
func sane(t *testing.T, r Reading, err error) {
	t.Helper()
	if err == nil && (r.Busy > MostBusy || r.Written != 0) {
		t.Fatalf("read %+v", r)
	}
}

func FuzzScoreboard(f *testing.F) {
	f.Add(board(2, 3))
	f.Add(board(1, 1))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		mem := memory{bytes.NewReader(data)}
		l, ok := layoutAt(mem, mapping{0, int64(len(data))})
		if !ok {
			return
		}
		r, err := (&scoreboard{mem: mem, layout: l}).count()
		sane(t, r, err)
		if err == nil && (r.Busy > r.Workers || int64(r.Workers) > l.servers*l.threads) {
			t.Fatalf("%+v of %+v", r, l)
		}
	})
}

func FuzzSharedMemory(f *testing.F) {
	f.Add("7f061ef49000-7f061ef61000 rw-s 00000000 00:01 1025                       /dev/zero (deleted)\n")
	f.Add("0-ffffffffffffffff rw-s\n5-4 rw-s\nx\n")
	f.Fuzz(func(t *testing.T, maps string) {
		for _, m := range sharedMemory(maps) {
			if m.at < 0 || m.size <= 0 {
				t.Fatalf("%+v", m)
			}
		}
	})
}

func FuzzFastCGI(f *testing.F) {
	f.Add(cgiRecord(cgiRecord(nil, cgiStdout, []byte("Status: 200\r\n\r\n{}")), cgiEnd, make([]byte, 8)))
	f.Add([]byte{1, 6, 0, 1, 255, 255, 255, 0})
	f.Fuzz(func(t *testing.T, data []byte) {
		if out, err := cgiAnswer(bytes.NewReader(data)); err == nil && len(out) > len(data) {
			t.Fatalf("%d bytes out of %d", len(out), len(data))
		}
	})
}

func FuzzPHPFPM(f *testing.F) {
	f.Add([]byte(`{"pool":"www","start time":1,"listen queue":0,"active processes":1,"total processes":4,"processes":[{"state":"Running","request uri":"/status?json&full&proffer-asks"}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		p := &phpFPM{}
		for range 2 {
			r, err := p.parse(data)
			sane(t, r, err)
		}
	})
}

func FuzzTexts(f *testing.F) {
	f.Add([]byte("Active connections: 1 \nserver accepts handled requests\n 1 1 1 \nReading: 0 Writing: 1 Waiting: 0 \n"))
	f.Add([]byte("# pxname,svname,scur,slim\nweb,BACKEND,3,99\n"))
	f.Add([]byte("http.web.downstream_rq_active: 3\n"))
	f.Add([]byte("# TYPE web gauge\nweb{a=\"b\"} 3\nweb 4\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, parse := range []func([]byte) (Reading, error){
			parseNginx,
			func(b []byte) (Reading, error) { return parseHAProxy(b, "web") },
			func(b []byte) (Reading, error) { return parseEnvoy(b, "http.web.downstream_rq_active") },
			func(b []byte) (Reading, error) { return parsePrometheus(b, topo.Metric{Name: "web"}) },
		} {
			r, err := parse(data)
			sane(t, r, err)
		}
	})
}
