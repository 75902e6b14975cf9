package study

import (
	"slices"

	"proffer/lab/sim"
	"proffer/lab/stats"
)

// Server is the result of one server. Counts are of all requests of all runs; the mean
// time is that of its requests that count, over runs.
type Server struct {
	Server   int          `json:"server"`
	Group    int          `json:"group"`
	Accepted int          `json:"accepted"`
	PassedOn int          `json:"passed_on"` // offers that went on to the next server
	Refused  int          `json:"refused"`
	Share    stats.Number `json:"share"` // of all requests that were accepted
	Mean     stats.Number `json:"mean_ms"`
}

// servers are the results of a run; of a failed run there are none.
func (s *Setting) servers(r sim.Result) (servers []Server) {
	for i := range r.Accepted {
		servers = append(servers, Server{
			Server: i, Group: s.Farm.Servers[i].Group, Accepted: r.Accepted[i], PassedOn: r.PassedOn[i], Refused: r.Rejected[i],
			Mean: stats.Number(r.Times[i]),
		})
	}
	return servers
}

// sumServers adds up the results of all runs. A run in which a server answered no
// request that counts has no part in its mean time.
func sumServers(runs []run) []Server {
	all := slices.Clone(runs[0].servers)
	total := 0
	for i := range all {
		for _, r := range runs[1:] {
			all[i].Accepted += r.servers[i].Accepted
			all[i].PassedOn += r.servers[i].PassedOn
			all[i].Refused += r.servers[i].Refused
		}
		total += all[i].Accepted
		with := slices.DeleteFunc(slices.Clone(runs), func(r run) bool { return !r.servers[i].Mean.Exists() })
		all[i].Mean, _ = estimate(with, func(r run) float64 { return float64(r.servers[i].Mean) })
	}
	for i := range all {
		all[i].Share = stats.Number(round(float64(all[i].Accepted)/float64(max(total, 1)), 1e9))
	}
	return all
}
