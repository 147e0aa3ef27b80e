package trial

import (
	"time"

	"github.com/dispatcherd/dispatcherd/harness/internal/judge"
)

// notDivided makes the isolation of rows consider no error to be caused by a row.
var notDivided = Cut{"claim/isolate.go", "return e.Code == timedOut || e.Code != insufficientPrivilege &&", "return e.Code == \"\" &&", 1}

// rowControls are the controls of the trials in which single rows are locked, damaged,
// large or changed.
func rowControls() []*Control {
	unreadable, large := unreadableRows, largeBatches
	unreadable.Drain, large.Drain = 15*time.Second, 15*time.Second
	return []*Control{
		{
			Trial: named(unreadable, "isolation-out", "a statement that fails because of one row is not divided: one unreadable row stops all", notDivided),
			Found: func(r *judge.Report) int { return r.Lost },
		},
		{
			Trial: named(large, "payload-out", "a claim reads payloads of every size: it reaches the statement timeout again and again", notDivided,
				Cut{"claim/statements.go", "CASE WHEN pg_column_size(payload) <= $4::int / 8", "CASE WHEN $4::int IS NOT NULL", 1},
				Cut{"claim/config.go", `"statement_timeout":                   limit,`, `"statement_timeout": "1000",`, 1}, // for a batch that is quickly inserted
			),
			Found: func(r *judge.Report) int { return r.Lost },
		},
		{
			Trial: named(operatorUpdates, "lane-out", "a dispatcher does not compare type and priority of a claimed row with those of its lane",
				Cut{"actor/claim.go", "return w.Type != c.index.Name(j.typ) || w.Priority != j.priority", "return false", 1},
			),
			Found: func(r *judge.Report) int { return r.Affinity },
		},
		{
			Trial: named(rowLocks, "patience-out", "a finish waits for row locks as long as for every other statement",
				Cut{"claim/store.go", "range s.finish {\n\t\tl.setup = fmt.Sprintf(\"SET lock_timeout = %d\", lockPatience.Milliseconds())",
					"range s.finish {\n\t\tl.setup = fmt.Sprintf(\"SET lock_timeout = %d\", 4000)", 1},
			),
			Found: func(r *judge.Report) int { return r.Delayed },
		},
	}
}
