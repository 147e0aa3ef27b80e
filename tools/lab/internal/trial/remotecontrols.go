package trial

import (
	"time"

	"github.com/dispatcherd/dispatcherd/tools/lab/internal/judge"
)

// RemoteControls are the controls of the trials of remote workers. flags make a partition of a few seconds long enough.
func RemoteControls(flags []string) []*Control {
	control := func(name, about string, cuts ...Cut) *Control {
		t := named(*RemotePartition("", false, flags, 6*time.Second), name, about, cuts...)
		return &Control{Trial: t, Found: func(r *judge.Report) int { return r.Twice }}
	}
	return []*Control{
		control(
			"stop-out",
			"a worker does not stop its executions before its dispatcher gives their jobs to others",
			Cut{"workerproto/conn.go", "return time.Until(*c.until.Load())", "return time.Until(*c.until.Load()) + time.Minute", 1},
		),
		control(
			"detach-out",
			"a dispatcher takes the end of a remote connection for the death of the worker",
			Cut{"actor/detach.go", "return (s.remote || s.away) &&", "return s.away &&", 1},
		),
	}
}
