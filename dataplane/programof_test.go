package dataplane

import "testing"

func TestProgramOf(t *testing.T) {
	id, ran, ok := programOf("pos:\t0\nprog_type:\t6\nprog_tag:\tdeadbeef\nprog_id:\t42\nrun_time_ns:\t1500\nrun_cnt:\t3\n")
	if !ok || id != 42 || ran != (Ran{Runs: 3, Time: 1500}) {
		t.Errorf("%d, %+v, %v", id, ran, ok)
	}
	for _, other := range []string{"", "pos:\t0\nmap_type:\t1\n", "link_type:\txdp\nprog_id:\t42\n"} {
		if id, ran, ok := programOf(other); ok {
			t.Errorf("%q is program %d, %+v", other, id, ran)
		}
	}
}
