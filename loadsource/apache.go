package loadsource

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"time"

	"proffer/foreign"
	"proffer/topo"
)

// apache reads the scoreboard of Apache httpd 2.4 (its include/scoreboard.h) on Linux with 64
// bits: shared memory that httpd's first process maps and keeps through graceful restarts. It is
// read through /proc, as by default no file has its name, and a mapping that shrinks would end
// the reader.
type apache struct {
	pidFile string
	board   *scoreboard
}

func openApache(o *topo.Offering) (Source, error) { return &apache{pidFile: o.From}, nil }

func (a *apache) Every() time.Duration { return everyScoreboard }

// Read looks for the scoreboard again after each error: httpd may have started again.
func (a *apache) Read(ctx context.Context, now time.Duration) (Reading, error) {
	if a.board == nil {
		board, err := findScoreboard("/proc", a.pidFile)
		if err != nil {
			return Reading{}, err
		}
		a.board = board
	}
	r, err := a.board.count(ctx)
	if err != nil {
		return r, errors.Join(err, a.Close())
	}
	r.Written = now
	return r, nil
}

func (a *apache) Close() error {
	if a.board == nil {
		return nil
	}
	board := a.board
	a.board = nil
	return board.mem.Close()
}

// findScoreboard finds it among the shared memory of httpd's first process.
func findScoreboard(proc, pidFile string) (*scoreboard, error) {
	pid, err := readPID(pidFile)
	if err != nil {
		return nil, err
	}
	maps, err := os.Open(fmt.Sprintf("%s/%d/maps", proc, pid))
	if err != nil {
		return nil, ofProcess(pid, err)
	}
	defer maps.Close()
	mem, err := os.Open(fmt.Sprintf("%s/%d/mem", proc, pid))
	if err != nil {
		return nil, ofProcess(pid, err)
	}
	all := sharedMemory(maps)
	for _, at := range all {
		if l, ok := layoutAt(mem, at); ok {
			return &scoreboard{mem: mem, layout: l}, nil
		}
	}
	mem.Close()
	return nil, fmt.Errorf("process %d of %s has no scoreboard of httpd 2.4 in its shared memory (%d mappings): is it httpd, of 64 bits?", pid, pidFile, len(all))
}

// longestPID bounds the PID file of httpd, which may end with spaces.
const longestPID = 32

// readPID reads the PID file of httpd.
func readPID(path string) (int, error) {
	b, err := foreign.ReadFile(path, longestPID)
	if err != nil {
		return 0, fmt.Errorf("httpd's PID file: %w", err)
	}
	pid, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 32)
	if err != nil || pid < 1 {
		return 0, fmt.Errorf("httpd's PID file %s has no process number", path)
	}
	return int(pid), nil
}

// ofProcess is an error of a process' files in /proc.
func ofProcess(pid int, err error) error {
	switch {
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("read the memory of httpd (process %d): %w: %s", pid, err, topo.Needs("CAP_SYS_PTRACE"))
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("httpd (process %d) does not run", pid)
	default:
		return fmt.Errorf("read the memory of httpd (process %d): %w", pid, err)
	}
}

// mapping is a part of a process' memory.
type mapping struct{ at, size int64 }

// Bounds of a process' list of mappings, which it makes itself: bytes that are read of it, and shared
// mappings that are looked at.
const (
	longestMaps  = 16 << 20
	mostMappings = 4096
)

// sharedMemory lists the shared mappings that can be written (proc_pid_maps(5)).
func sharedMemory(maps io.Reader) (all []mapping) {
	for lines := bufio.NewScanner(io.LimitReader(maps, longestMaps)); lines.Scan() && len(all) < mostMappings; {
		area, rest, _ := strings.Cut(lines.Text(), " ")
		first, last, _ := strings.Cut(area, "-")
		from, wrong := strconv.ParseInt(first, 16, 64) // a vsyscall page is above
		to, wrongTo := strconv.ParseInt(last, 16, 64)
		if wrong == nil && wrongTo == nil && strings.HasPrefix(rest, "rw-s ") && 0 <= from && from < to {
			all = append(all, mapping{from, to - from})
		}
	}
	return all
}

// A scoreboard is the length of all, by APR; global_score; a process_score for each of
// server_limit processes; and a worker_score for each of their thread_limit threads.
const (
	aprLength      = 8
	globalScore    = 56
	processScore   = 40
	workerNumber   = 8  // offset of thread_num
	workerStatus   = 20 // offset of status
	workerBegan    = 64 // offset of start_time
	workerAnswered = 72 // offset of stop_time
	longestBoard   = 64 << 20
	aprServers     = aprLength
	aprThreads     = aprLength + 4
	boardsHeader   = aprLength + globalScore
	smallestBoard  = boardsHeader + processScore
)

// workerScores are the sizes of worker_score in httpd 2.4: today's, without client64, and
// without duration.
var workerScores = []int64{336, 272, smallestWorker}

const smallestWorker = 264

// layout is that of a scoreboard.
type layout struct{ at, servers, threads, worker int64 }

// layoutAt reads the layout of a scoreboard from its limits and its length, which must be those
// of each other.
func layoutAt(mem io.ReaderAt, m mapping) (layout, bool) {
	var head [boardsHeader]byte
	if _, err := mem.ReadAt(head[:], m.at); err != nil {
		return layout{}, false
	}
	size := int64(binary.NativeEndian.Uint64(head[:]))
	l := layout{
		at:      m.at,
		servers: int64(int32(binary.NativeEndian.Uint32(head[aprServers:]))),
		threads: int64(int32(binary.NativeEndian.Uint32(head[aprThreads:]))),
	}
	if size < smallestBoard || size > min(m.size, longestBoard) || l.servers < 1 || l.threads < 1 ||
		l.servers > longestBoard/processScore || l.threads > longestBoard/smallestWorker {
		return layout{}, false
	}
	for _, l.worker = range workerScores {
		if l.size() == size {
			return l, true
		}
	}
	return layout{}, false
}

// size is of numbers below 2^21, 2^18 and 2^9: it does not wrap.
func (l layout) size() int64 {
	return boardsHeader + processScore*l.servers + l.worker*l.servers*l.threads
}

// process and row are the addresses of a process_score, and of a worker_score.
func (l layout) process(i int64) int64 { return l.at + boardsHeader + processScore*i }
func (l layout) row(i int64) int64     { return l.process(l.servers) + l.worker*i }

// scoreboard is a scoreboard that was found.
type scoreboard struct {
	mem interface {
		io.ReaderAt
		io.Closer
	}
	layout layout
}

var errGone = errors.New("httpd's first process has ended")

// readAtOnce bounds a part of the scoreboard that is read at once, which is a call of the kernel, to
// the cache's size.
const readAtOnce = 32 << 10

// count counts the workers with a request. Rows are read of those processes alone that there
// are, in parts of a size of ours.
func (s *scoreboard) count(ctx context.Context) (Reading, error) {
	l := s.layout
	if now, ok := layoutAt(s.mem, mapping{l.at, l.size()}); !ok || now != l {
		return Reading{}, errGone
	}
	c, buffer := workerCount{}, make([]byte, 2*readAtOnce)
	processes, rows := buffer[:readAtOnce/processScore*processScore], buffer[readAtOnce:]
	for first := int64(0); first < l.servers; first += int64(len(processes)) / processScore {
		part := processes[:min(int64(len(processes)), processScore*(l.servers-first))]
		if _, err := s.mem.ReadAt(part, l.process(first)); err != nil {
			return Reading{}, errGone
		}
		if err := s.countLive(ctx, &c, part, first, rows); err != nil {
			return Reading{}, err
		}
	}
	return c.reading(), nil
}

// countLive counts the workers of those processes that there are, from the first on. Their rows
// follow each other in memory.
func (s *scoreboard) countLive(ctx context.Context, c *workerCount, processes []byte, first int64, rows []byte) error {
	l, n := s.layout, int64(len(processes))/processScore
	for i := int64(0); i < n; i++ {
		from := i
		for i < n && binary.NativeEndian.Uint32(processes[processScore*i:]) != 0 {
			i++
		}
		if err := s.countRows(ctx, c, l.threads*(first+from), l.threads*(first+i), rows); err != nil {
			return err
		}
	}
	return nil
}

// countRows counts the workers of these numbers.
func (s *scoreboard) countRows(ctx context.Context, c *workerCount, from, to int64, rows []byte) error {
	l := s.layout
	for most := int64(len(rows)) / l.worker; from < to; from += most {
		n := min(most, to-from)
		if _, err := s.mem.ReadAt(rows[:n*l.worker], l.row(from)); err != nil {
			return errGone
		}
		for i := range n {
			if err := c.add(rows[l.worker*i:], from+i); err != nil {
				return err
			}
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return nil
}

// Statuses of a worker (scoreboard.h, SERVER_*).
const (
	workerStarting = 1
	workerReading  = 3
	workerWriting  = 4
	workerLogging  = 6
	workerDNS      = 7
	workerGraceful = 9
	workerStatuses = 11
)

// workerCount counts workers. A graceful restart may overwrite the status of workers that read,
// answer, keep a connection alive, or end; then their times tell them apart: a request began
// after the last was answered. Times are written with ExtendedStatus, as Debian has it; without,
// all these workers count until they end.
type workerCount struct {
	workers, busy uint32
	unsure        uint32 // without times
	timed         bool   // some worker has times
}

func (c *workerCount) reading() Reading {
	r := Reading{Busy: c.busy, Workers: c.workers}
	if !c.timed {
		r.Busy += c.unsure
	}
	return r
}

// add counts a worker. Its row has its own number, so that memory which is no scoreboard is noticed.
func (c *workerCount) add(row []byte, worker int64) error {
	status, number := row[workerStatus], int64(binary.NativeEndian.Uint32(row[workerNumber:]))
	if status >= workerStatuses || status > workerStarting && number != worker {
		return fmt.Errorf("httpd's scoreboard is of an unknown layout: worker %d has the number or the status of none", worker)
	}
	began, answered := binary.NativeEndian.Uint64(row[workerBegan:]), binary.NativeEndian.Uint64(row[workerAnswered:])
	c.timed = c.timed || began != 0
	if status <= workerStarting {
		return nil
	}
	c.workers++
	switch status {
	case workerReading, workerWriting, workerLogging, workerDNS:
		c.busy++
	case workerGraceful:
		if began > answered {
			c.busy++
		} else if began == 0 {
			c.unsure++
		}
	}
	return nil
}
