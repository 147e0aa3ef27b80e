package judge

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/dispatcherd/dispatcherd/tools/lab/internal/history"
)

// KeyRun is the time for which the row of a job with keys ran: from a claim until the row ended or was pending again.
// Both times are of the database and before the commit. The next job is admitted after the commit of the end.
type KeyRun struct {
	Job      int64
	Keys     string
	From, To int64
}

// Need is what a job needs of one key.
type Need struct {
	Key  string
	Cost int
	All  bool
}

// Needs parses keys. The costs of equal keys add up.
func Needs(keys string) (list []Need) {
	for word := range strings.SplitSeq(keys, " ") {
		key, cost, given := strings.Cut(word, "*")
		n := Need{Key: key, Cost: 1, All: cost == "all"}
		if given && !n.All {
			n.Cost, _ = strconv.Atoi(cost) // Postgres accepts only numbers
		}
		if i := slices.IndexFunc(list, func(o Need) bool { return o.Key == key }); i >= 0 {
			list[i].Cost, list[i].All = list[i].Cost+n.Cost, list[i].All || n.All
			continue
		}
		list = append(list, n)
	}
	return list
}

// KeyOver returns a text for each start beyond the capacity of a key, by the number of its run.
func KeyOver(runs []KeyRun, capacity func(key string) int) map[int]string {
	type event struct {
		at    int64
		start bool
		run   int
	}
	var events []event
	for i := range runs {
		events = append(events, event{runs[i].From, true, i}, event{runs[i].To, false, i})
	}
	slices.SortFunc(events, func(a, b event) int {
		if c := cmp.Compare(a.at, b.at); c != 0 || a.start == b.start {
			return c
		}
		if a.start {
			return 1 // an end comes first
		}
		return -1
	})
	type use struct{ cost, holders, alone int }
	used, over, known := map[string]*use{}, map[int]string{}, map[string][]Need{}
	for _, e := range events {
		keys := runs[e.run].Keys
		if known[keys] == nil {
			known[keys] = Needs(keys)
		}
		for _, n := range known[keys] {
			u := used[n.Key]
			if u == nil {
				u = &use{}
				used[n.Key] = u
			}
			sign := -1
			if e.start {
				sign = 1
			}
			u.holders += sign
			if n.All {
				u.alone += sign
			} else {
				u.cost += sign * n.Cost
			}
			most := capacity(n.Key)
			if e.start && (u.cost > most || u.alone > 0 && u.holders > 1) {
				over[e.run] = fmt.Sprintf("with it %d jobs run that cost %d of key %s, whose capacity is %d; %d of them need all",
					u.holders, u.cost, n.Key, most, u.alone)
			}
		}
	}
	return over
}

// KeyJob is a job with keys.
type KeyJob struct {
	Job       int64
	Class     string // equal for jobs with equal keys, type and priority
	RunAt     int64  // as inserted
	Begun     int64  // when the transaction of its producer began
	Committed int64  // when its producer knew the commit; 0 = never
	Admitted  int64  // the fence of its first start; jobs of one class may have the times of their first starts instead
}

// KeyOrder returns a text for each job that got its permits before an earlier job of its class, by the number of the job.
// The earlier job was committed before the transaction of the later one began, so any controller could know both.
func KeyOrder(jobs []KeyJob) map[int]string {
	order := make([]int, len(jobs))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int {
		x, y := &jobs[a], &jobs[b]
		return cmp.Or(cmp.Compare(x.Class, y.Class), cmp.Compare(x.RunAt, y.RunAt), cmp.Compare(x.Job, y.Job))
	})
	passed := map[int]string{}
	for i, b := range order {
		for k := i - 1; k >= max(0, i-lookBack) && jobs[order[k]].Class == jobs[b].Class; k-- {
			x, y := &jobs[order[k]], &jobs[b]
			if x.Committed != 0 && x.Committed < y.Begun && x.Admitted > y.Admitted {
				passed[b] = fmt.Sprintf("it was admitted (%d) before the earlier job %d (%d)", y.Admitted, x.Job, x.Admitted)
				break
			}
		}
	}
	return passed
}

// lookBack bounds the earlier jobs with which a job is compared.
const lookBack = 1000

// keys checks jobs with keys.
func (r *Report) keys(h *history.History, jobs map[int64]*job) {
	var runs []KeyRun
	var started []KeyJob
	for _, id := range sortedIDs(jobs) {
		j := jobs[id]
		if j.row == nil || j.row.Keys == "" {
			continue
		}
		first := KeyJob{Job: id, Class: fmt.Sprint(j.row.Keys, "|", j.row.Type, "|", j.row.Priority)}
		for _, c := range j.changes {
			switch c.Kind {
			case history.Inserted:
				first.RunAt = c.Due
			case history.Claimed:
				runs = append(runs, KeyRun{Job: id, Keys: j.row.Keys, From: c.At, To: Forever})
				if first.Admitted == 0 {
					first.Admitted = c.Fence
				}
			case history.Back, history.Ended:
				if n := len(runs); n > 0 && runs[n-1].Job == id && runs[n-1].To == Forever {
					runs[n-1].To = c.At
				}
			case history.Illegal, history.Adopted, history.Lost, history.Updated:
			}
		}
		if b := j.batch; b != nil && first.Admitted != 0 {
			if first.Begun = b.Begun; b.Fate == history.Committed {
				first.Committed = b.Ended
			}
			started = append(started, first)
		}
	}
	over := KeyOver(runs, func(key string) int {
		if c, limited := h.Capacity[key]; limited {
			return c
		}
		return 1
	})
	for i := range runs {
		if text := over[i]; text != "" {
			r.find(&r.KeyOver, "key over", runs[i].Job, "%s", text)
		}
	}
	passed := KeyOrder(started)
	for i := range started {
		if text := passed[i]; text != "" {
			r.find(&r.KeyOrder, "key order", started[i].Job, "%s", text)
		}
	}
}
