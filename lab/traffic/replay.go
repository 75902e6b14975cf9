package traffic

import (
	"math"
	"slices"
	"time"

	"proffer/lab/traffic/responder"
)

// Replay serves again, in virtual time and without any network, the requests of
// each server: rows at their intended starts, with their services, on the server that
// answered them, of which machine has the capacity. It returns their response times in the order of
// rows; rows without an answer have 0. The excess of the measured latencies
// is the network's, the system's and the measurement's share.
func Replay(rows []Row, machine func(server string) responder.Machine) []time.Duration {
	responses := make([]time.Duration, len(rows))
	for server, jobs := range byServer(rows) {
		if server != "" {
			replayServer(rows, jobs, machine(server), responses)
		}
	}
	return responses
}

// Fidelity is the mean latency of the rows that ended OK over the mean that
// Replay gives them: 1.02 means that 2 % of the measured time is not queueing.
func Fidelity(rows []Row, machine func(server string) responder.Machine) float64 {
	var measured, exact time.Duration
	for i, response := range Replay(rows, machine) {
		if rows[i].Outcome == OK {
			measured += rows[i].Latency()
			exact += response
		}
	}
	return float64(measured) / float64(exact)
}

// Alike are servers of one machine.
func Alike(m responder.Machine) func(server string) responder.Machine {
	return func(string) responder.Machine { return m }
}

// byServer returns the indices of each server's rows by intended start.
func byServer(rows []Row) map[string][]int {
	jobs := map[string][]int{}
	for i, r := range rows {
		jobs[r.Server] = append(jobs[r.Server], i)
	}
	for _, indices := range jobs {
		slices.SortStableFunc(indices, func(a, b int) int {
			return int(rows[a].Intended - rows[b].Intended)
		})
	}
	return jobs
}

func replayServer(rows []Row, jobs []int, m responder.Machine, responses []time.Duration) {
	cores := responder.NewCores(m)
	for _, i := range jobs {
		cores.Arrive(rows[i].Intended, rows[i].Service)
	}
	for _, done := range cores.Advance(math.MaxInt64) {
		i := jobs[done.Job]
		responses[i] = done.At - rows[i].Intended
	}
}
