package trace

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/dispatcherd/dispatcherd"
)

// Execution is one completed run of a job, in the trace's own time.
type Execution struct {
	Job     int64
	Slot    int64
	StartMS int64
	EndMS   int64
}

// Executions turns a schedule in simulated time into executions: each job
// lasts exactly as long as the trace says.
func (t *Trace) Executions(ps []Placement) []Execution {
	lengths := make(map[int64]int64, len(t.Jobs))
	for _, j := range t.Jobs {
		lengths[j.ID] = j.DurationMS
	}
	done := make([]Execution, len(ps))
	for i, p := range ps {
		done[i] = Execution{Job: p.Job, Slot: p.Slot, StartMS: p.StartMS, EndMS: p.StartMS + lengths[p.Job]}
	}
	return done
}

// Report describes a run of a trace. All times are seconds of the trace.
type Report struct {
	Trace    string        `json:"trace"`
	Jobs     int           `json:"jobs"`
	Done     int           `json:"done"`
	Failed   int           `json:"failed"`
	Makespan float64       `json:"makespan_seconds"` // from the first arrival to the last end
	Groups   []WaitGroup   `json:"waits"`
	Classes  []ClassReport `json:"classes"`
	Findings Findings      `json:"findings"`
}

// WaitGroup is one row of the waits table: the time from arrival to start of
// the jobs it describes.
type WaitGroup struct {
	By    string  `json:"by"`    // "all", "mode", "priority" or "capacity"
	Value string  `json:"value"` // "on_demand", "7", "2-3"
	Jobs  int     `json:"jobs"`  // that started
	Mean  float64 `json:"mean_seconds"`
	P50   float64 `json:"p50_seconds"`
	P95   float64 `json:"p95_seconds"`
	P99   float64 `json:"p99_seconds"`
	Max   float64 `json:"max_seconds"`
}

// ClassReport is one row of the utilisation table: the slots with the same
// set of types.
type ClassReport struct {
	Types       []string `json:"types"`
	Slots       int      `json:"slots"`
	Jobs        int      `json:"jobs"`
	OnLine      float64  `json:"on_line_seconds"` // sum over its slots
	Busy        float64  `json:"busy_seconds"`    // sum over its slots
	Utilisation float64  `json:"utilisation"`     // Busy / OnLine, 0..1
}

// Summarize makes the report of a run. A job that was executed more than once
// counts with its first start. findings are the findings of an Auditor or a
// Watch. A job that has neither executed nor failed counts as lost, even if
// findings does not count it.
func Summarize(t *Trace, done []Execution, failed int, findings Findings) Report {
	first := firsts(done)
	findings.Lost = max(findings.Lost, len(t.Jobs)-len(first)-failed)
	r := Report{Trace: t.Name, Jobs: len(t.Jobs), Done: len(first), Failed: failed, Findings: findings}
	r.Groups = waits(t, first)
	end := int64(0)
	for _, e := range done {
		end = max(end, e.EndMS)
	}
	r.Makespan = seconds(end - t.Jobs[0].ArrivalMS)
	r.Classes = classes(t, done, end)
	return r
}

// firsts returns the first execution of each job.
func firsts(done []Execution) map[int64]Execution {
	first := make(map[int64]Execution, len(done))
	for _, e := range done {
		if before, ok := first[e.Job]; !ok || e.StartMS < before.StartMS {
			first[e.Job] = e
		}
	}
	return first
}

func seconds(ms int64) float64 { return float64(ms) / 1000 }

// waits groups the waits of the jobs that started.
func waits(t *Trace, first map[int64]Execution) []WaitGroup {
	type key struct {
		by    int // position in the table
		order int
		value string
	}
	names := [...]string{"all", "mode", "priority", "capacity"}
	samples := map[key][]int64{}
	capacities := capacityAtArrival(t)
	for i, j := range t.Jobs {
		e, ok := first[j.ID]
		if !ok {
			continue
		}
		wait := max(0, e.StartMS-j.ArrivalMS) // the clocks of a replay may differ slightly
		band, label := capacityBand(capacities[i])
		for _, k := range [...]key{
			{0, 0, ""},
			{1, int(j.Mode), j.Mode.String()},
			{2, int(dispatcherd.MaxPriority - j.Priority), fmt.Sprint(j.Priority)},
			{3, band, label},
		} {
			samples[k] = append(samples[k], wait)
		}
	}
	keys := make([]key, 0, len(samples))
	for k := range samples {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b key) int { return cmp.Or(cmp.Compare(a.by, b.by), cmp.Compare(a.order, b.order)) })
	groups := make([]WaitGroup, len(keys))
	for i, k := range keys {
		groups[i] = waitGroup(names[k.by], k.value, samples[k])
	}
	return groups
}

func waitGroup(by, value string, ms []int64) WaitGroup {
	slices.Sort(ms)
	sum := int64(0)
	for _, w := range ms {
		sum += w
	}
	return WaitGroup{By: by, Value: value, Jobs: len(ms),
		Mean: seconds(sum) / float64(len(ms)),
		P50:  seconds(percentile(ms, 50)), P95: seconds(percentile(ms, 95)), P99: seconds(percentile(ms, 99)), Max: seconds(ms[len(ms)-1])}
}

// percentile returns the nearest rank: the smallest value that is not smaller
// than p percent of the sorted, non-empty values.
func percentile(sorted []int64, p int) int64 {
	return sorted[(len(sorted)*p+99)/100-1]
}

// capacityAtArrival returns for each job how many registered slots supported
// its type at the instant of its arrival.
func capacityAtArrival(t *Trace) []int {
	types := map[int64][]string{}
	for _, s := range t.Slots {
		types[s.ID] = s.Types
	}
	capacity := map[string]int{}
	events := t.Registrations()
	at := make([]int, len(t.Jobs))
	for i, j := range t.Jobs {
		for len(events) > 0 && events[0].AtMS <= j.ArrivalMS {
			step := 1
			if events[0].Kind == Drain {
				step = -1
			}
			for _, typ := range types[events[0].Slot] {
				capacity[typ] += step
			}
			events = events[1:]
		}
		at[i] = capacity[j.Type]
	}
	return at
}

// capacityBand sorts capacities into bands whose rarity points differ by about
// a factor of two: 0, 1, 2-3, 4-7, 8-15, 16+.
func capacityBand(n int) (order int, label string) {
	labels := [...]string{"0", "1", "2-3", "4-7", "8-15", "16+"}
	for bound := 1; order < len(labels)-1 && n >= bound; bound *= 2 {
		order++
	}
	return order, labels[order]
}

// classes measures each set of slots with the same types. A slot is online
// from its registration to its drain, or to the end of its last job if that
// is later.
func classes(t *Trace, done []Execution, end int64) []ClassReport {
	online, busy, jobs := onlineMS(t, done, end), map[int64]int64{}, map[int64]int{}
	for _, e := range done {
		busy[e.Slot] += e.EndMS - e.StartMS
		jobs[e.Slot]++
	}
	at := map[string]int{}
	var rows []ClassReport
	for _, s := range t.Slots {
		name := joinTypes(s.Types)
		i, known := at[name]
		if !known {
			i = len(rows)
			at[name] = i
			rows = append(rows, ClassReport{Types: s.Types})
		}
		rows[i].Slots++
		rows[i].Jobs += jobs[s.ID]
		rows[i].OnLine += seconds(online[s.ID])
		rows[i].Busy += seconds(busy[s.ID])
	}
	for i := range rows {
		if rows[i].OnLine > 0 {
			rows[i].Utilisation = rows[i].Busy / rows[i].OnLine
		}
	}
	slices.SortStableFunc(rows, func(a, b ClassReport) int {
		return cmp.Or(cmp.Compare(len(a.Types), len(b.Types)), slices.Compare(a.Types, b.Types))
	})
	return rows
}

// onlineMS returns how long each slot was registered or busy, up to end. It is
// the union of its sessions and executions.
func onlineMS(t *Trace, done []Execution, end int64) map[int64]int64 {
	spans := map[int64][]span{}
	open := map[int64]int64{}
	for _, e := range t.Registrations() {
		if e.Kind == Register {
			open[e.Slot] = e.AtMS
			continue
		}
		spans[e.Slot] = append(spans[e.Slot], span{open[e.Slot], e.AtMS})
		delete(open, e.Slot)
	}
	for slot, from := range open {
		spans[slot] = append(spans[slot], span{from, max(from, end)})
	}
	for _, e := range done {
		spans[e.Slot] = append(spans[e.Slot], span{e.StartMS, e.EndMS})
	}
	total := map[int64]int64{}
	for slot, list := range spans {
		slices.SortFunc(list, func(a, b span) int { return cmp.Or(cmp.Compare(a.from, b.from), cmp.Compare(a.to, b.to)) })
		covered := int64(0)
		for _, s := range list {
			total[slot] += max(0, s.to-max(s.from, covered))
			covered = max(covered, s.to)
		}
	}
	return total
}
