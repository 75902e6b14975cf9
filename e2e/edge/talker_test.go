package edge

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"proffer/e2e/kit"
	"proffer/lab/testbed"
)

// talkerEnv has this program be a talker.
const talkerEnv = "PROFFER_TEST_TALKER"

// talkers is how many processes share the client's flows: a process may have only so many open files.
const talkers = 2

// said is a talker's answer.
type said struct {
	At     [lbsNodes]int // flows that began at each node
	Rounds int           // questions of each flow, in the time between `talk` and `stop`
	Broken int64
	Why    string // of one of the broken flows, or of one that could not begin
}

// beTalker obeys commands, a line each: `begin N` opens N flows of each protocol, `talk` has all flows ask
// again and again, until `stop`. The answers to the first and the last are JSON.
func beTalker() int {
	var all []*spoken
	out := json.NewEncoder(os.Stdout)
	var over atomic.Bool
	talked := make(chan said)
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		var answer said
		var each int
		switch command := in.Text(); {
		case command == "talk":
			over.Store(false)
			go func() { talked <- talkUntil(all, &over) }()
			continue
		case command == "stop":
			over.Store(true)
			answer = <-talked
		default:
			if _, err := fmt.Sscanf(command, "begin %d", &each); err != nil {
				fmt.Fprintf(os.Stderr, "%q: %v\n", command, err)
				return 1
			}
			fresh, err := beginFlows(func(f func() error) error { return f() }, each)
			if err != nil {
				answer.Why = err.Error()
			}
			for _, s := range fresh {
				if s != nil {
					answer.At[s.at()]++
				}
			}
			all = append(all, fresh...)
		}
		if out.Encode(answer) != nil {
			return 1
		}
	}
	return 0
}

// talkUntil has all flows ask, round by round, until it is over, or one is broken.
func talkUntil(all []*spoken, over *atomic.Bool) (s said) {
	for last := false; !last && s.Broken == 0; s.Rounds++ {
		last = over.Load()
		var reason error
		if s.Broken, reason = talkAll(all); reason != nil {
			s.Why = reason.Error()
		}
	}
	return s
}

// talker is such a process at the client.
type talker struct {
	in  io.WriteCloser
	out *json.Decoder
}

func newTalker(t *testing.T, client *testbed.Node) *talker {
	t.Helper()
	self, err := os.Executable()
	kit.Must(t, err)
	cmd := exec.Command("ip", "netns", "exec", client.Namespace, self)
	cmd.Env = append(os.Environ(), talkerEnv+"=1")
	var log strings.Builder
	cmd.Stderr = &log
	in, err := cmd.StdinPipe()
	kit.Must(t, err)
	out, err := cmd.StdoutPipe()
	kit.Must(t, err)
	kit.Must(t, testbed.StartChild(cmd, unix.SIGKILL))
	t.Cleanup(func() {
		in.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("a talker: %v\n%s", err, log.String())
		}
	})
	return &talker{in, json.NewDecoder(out)}
}

func (k *talker) tell(t *testing.T, command string) {
	t.Helper()
	_, err := fmt.Fprintln(k.in, command)
	kit.Must(t, err)
}

// tellAll gives all talkers a command, and adds up their answers: the fewest of the rounds.
func tellAll(t *testing.T, all []*talker, command string) (sum said) {
	t.Helper()
	for _, k := range all {
		k.tell(t, command)
	}
	for i, k := range all {
		var one said
		if err := k.out.Decode(&one); err != nil {
			t.Fatal(errors.Join(errors.New("a talker ended"), err))
		}
		for node, n := range one.At {
			sum.At[node] += n
		}
		if i == 0 || one.Rounds < sum.Rounds {
			sum.Rounds = one.Rounds
		}
		sum.Broken += one.Broken
		if one.Why != "" {
			sum.Why = one.Why
		}
	}
	return sum
}
