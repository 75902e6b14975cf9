package loadsource

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"io"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

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
			row := b[l.row(i*threads+j):]
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
		r, err := (&scoreboard{mem: mem, layout: l}).count(t.Context())
		sane(t, r, err)
		if err == nil && (r.Busy > r.Workers || int64(r.Workers) > l.servers*l.threads) {
			t.Fatalf("%+v of %+v", r, l)
		}
	})
}

// limited is the memory of a scoreboard with such a head, and zeros behind it, however long.
type limited struct {
	head    [boardsHeader]byte
	longest int // of its readings
}

func (*limited) Close() error { return nil }

func (m *limited) ReadAt(b []byte, at int64) (int, error) {
	clear(b)
	if at < boardsHeader {
		copy(b, m.head[at:])
	}
	m.longest = max(m.longest, len(b))
	return len(b), nil
}

// FuzzLimits: a scoreboard is taken if, and only if, its length is that of its limits by numbers that
// have no end, and its counting makes room for nothing larger than a part.
func FuzzLimits(f *testing.F) {
	f.Add(uint64(board64(2, 3)), int32(2), int32(3), int64(1<<20))
	f.Add(uint64(longestBoard), int32(0x7fffffff), int32(0x7fffffff), int64(1<<40))
	for _, c := range wrapped {
		f.Add(c.size, c.servers, c.threads, int64(1<<40))
	}
	f.Fuzz(func(t *testing.T, size uint64, servers, threads int32, room int64) {
		m := &limited{}
		putNative64(m.head[:], size)
		putNative32(m.head[aprServers:], uint32(servers))
		putNative32(m.head[aprThreads:], uint32(threads))
		l, ok := layoutAt(m, mapping{0, room})
		want := false
		for _, worker := range workerScores {
			n := func(x int64) *big.Int { return big.NewInt(x) }
			all := n(0).Mul(n(int64(servers)), n(0).Add(n(processScore), n(0).Mul(n(int64(threads)), n(worker))))
			all.Add(all, n(boardsHeader))
			want = want || all.IsUint64() && all.Uint64() == size
		}
		want = want && servers > 0 && threads > 0 && size <= longestBoard && room > 0 && size <= uint64(room)
		if ok != want {
			t.Fatalf("%d bytes of %d, %d × %d: %+v, %v, want %v", size, room, servers, threads, l, ok, want)
		}
		if !ok {
			return
		}
		r, err := (&scoreboard{mem: m, layout: l}).count(t.Context())
		if err != nil || r.Workers != 0 || m.longest > readAtOnce {
			t.Fatalf("%+v, %v by parts of up to %d bytes", r, err, m.longest)
		}
	})
}

func board64(servers, threads int64) int64 {
	return layout{servers: servers, threads: threads, worker: workerScores[0]}.size()
}

func FuzzSharedMemory(f *testing.F) {
	f.Add("7f061ef49000-7f061ef61000 rw-s 00000000 00:01 1025                       /dev/zero (deleted)\n")
	f.Add("0-ffffffffffffffff rw-s\n5-4 rw-s\nx\n")
	f.Fuzz(func(t *testing.T, maps string) {
		for _, m := range sharedMemory(strings.NewReader(maps)) {
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
	f.Add([]byte(`{"listen queue":2,"active processes":3,"processes":[{"state":"Idle"},{"request uri":"proffer-asks","state":"Running"},{}]}`))
	f.Add([]byte(`{"listen queue":2,"active processes":3,"processes":{}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		p := &phpFPM{}
		for range 2 {
			r, err := p.parse(data)
			sane(t, r, err)
		}
		var all struct { // held in memory, all at once
			Processes []struct {
				State string `json:"state"`
				URI   string `json:"request uri"`
			} `json:"processes"`
		}
		var one struct {
			Processes *askers `json:"processes"`
		}
		if json.Unmarshal(data, &all) != nil || bytes.Count(bytes.ToLower(data), []byte("processes")) > 1 {
			return // or the key came twice
		}
		want := askers(0)
		for _, p := range all.Processes {
			if p.State == "Running" && strings.HasSuffix(p.URI, asks) {
				want++
			}
		}
		if err := json.Unmarshal(data, &one); err != nil || (one.Processes != nil) != (all.Processes != nil) || one.Processes != nil && *one.Processes != want {
			t.Fatalf("%q: %+v, %v, want %d", data, one, err, want)
		}
	})
}

// FuzzPrometheus: an answer that is right as a whole is read as if all of it were parsed.
func FuzzPrometheus(f *testing.F) {
	for _, seed := range []string{
		"# TYPE web gauge\nweb{a=\"b\"} 3\nweb 4\n", "#  TYPE\tweb counter\n web 3 1700000000\n", "# HELP web a TYPE\nweb 2\nother 7\n",
		"# TYPE web histogram\nweb_bucket{le=\"+Inf\"} 1\nweb_sum 1\nweb_count 1\n", "{\"web\",a=\"b\"} 3\n", "web_x 1\nx_web 1\nweb{a=\"}\\n\"} 5\n",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, answer string) {
		parser := expfmt.NewTextParser(model.LegacyValidation)
		families, err := parser.TextToMetricFamilies(strings.NewReader(answer))
		if err != nil {
			return
		}
		want, wrong := uint32(0), families["web"] == nil
		sum := 0.0
		for _, series := range families["web"].GetMetric() {
			wrong = wrong || series.Gauge == nil && series.Untyped == nil
			sum += series.GetGauge().GetValue() + series.GetUntyped().GetValue()
		}
		if !wrong {
			want, err = count(sum)
			wrong = err != nil || len(families["web"].Metric) == 0
		}
		got, err := parsePrometheus([]byte(answer), topo.Metric{Name: "web"})
		if (err != nil) != wrong || err == nil && got.Busy != want {
			t.Fatalf("%q: read %+v, %v; want %d, wrong: %v", answer, got, err, want, wrong)
		}
	})
}

// FuzzHAProxy: statistics are read as if all rows were.
func FuzzHAProxy(f *testing.F) {
	f.Add("# pxname,svname,scur,slim\nweb,FRONTEND,1,2\nweb,BACKEND,3,99\nweb2,BACKEND,4,\n")
	f.Add("# pxname,scur,svname\n\nweb,5,BACKEND\r\n")
	f.Fuzz(func(t *testing.T, answer string) {
		if !strings.HasPrefix(answer, "# pxname,") || strings.ContainsAny(answer, "\"\r") || strings.HasSuffix(answer, "web") {
			return
		}
		lines := strings.Split(answer, "\n")
		head := strings.Split(lines[0], ",")
		want, known := uint32(0), false
		for _, line := range lines[1:] {
			row := strings.Split(line, ",")
			field := func(name string) string {
				if i := slices.Index(head, name); 0 <= i && i < len(row) {
					return row[i]
				}
				return ""
			}
			if row[0] == "web" && field("svname") == "BACKEND" {
				n, err := strconv.ParseFloat(field("scur"), 64)
				if err == nil {
					want, err = count(n)
				}
				known = err == nil
				break
			}
		}
		got, err := parseHAProxy([]byte(answer), "web")
		if (err == nil) != known || known && got.Busy != want {
			t.Fatalf("%q: read %+v, %v; want %d, known: %v", answer, got, err, want, known)
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
