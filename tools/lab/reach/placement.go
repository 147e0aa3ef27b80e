package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/client"
	"github.com/dispatcherd/dispatcherd/internal/trace"
	"github.com/dispatcherd/dispatcherd/scoring"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/figure"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/rig"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/stage"
)

// The replay: a trace on one dispatcher, with the slots distributed over the workers of two hosts.
const (
	placementTrace = "bank_january"
	placementSpeed = 8000
	placementHosts = 2
	placementWait  = 2 * time.Minute // for the last jobs
)

// Placement replays days of a recorded workload with workers on two hosts, and checks each decision of their only dispatcher. It also
// counts the placements of the whole trace in simulated time that differ from those of an independent simulator.
func Placement(ctx context.Context, env *rig.Rig, traces string, days int) (figures, details figure.Figures, err error) {
	dir := filepath.Join(traces, placementTrace)
	recorded, err := trace.Load(dir)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: set DISPATCHERD_TRACES to the folder with the recorded workloads (docs/how-to/traces.md)", err)
	}
	differ, err := differences(recorded, dir)
	if err != nil {
		return nil, nil, err
	}
	r := &replay{trace: recorded, begin: time.Now()}
	end := int64(days) * 24 * 3600 * 1000
	r.jobs = recorded.Jobs[:slices.IndexFunc(append(slices.Clip(recorded.Jobs), trace.Job{ArrivalMS: end}),
		func(j trace.Job) bool { return j.ArrivalMS >= end })]
	if r.weights, err = trace.Compress(scoring.Default(), placementSpeed); err != nil {
		return nil, nil, err
	}
	found, err := r.run(ctx, env, dir)
	if err != nil {
		return nil, nil, err
	}
	share := 100 * (1 - float64(found.misplaced)/float64(max(1, found.placements)))
	return figure.Figures{
			figure.None("simulate_differs", float64(differ)), figure.None("decisions_against_rule", float64(found.wrong)),
			figure.AtLeast("placement_share_percent", share, 100),
		}, figure.Figures{
			figure.AtLeast("placements", float64(found.placements), float64(len(r.jobs))),
			figure.AtLeast("placements_with_choice", float64(found.choices), 1),
		}, nil
}

// differences counts the placements of the core that differ from those of an independent simulator.
func differences(t *trace.Trace, dir string) (n int, err error) {
	want, err := trace.LoadSchedule(filepath.Join(dir, "expected.csv"))
	if err != nil {
		return 0, err
	}
	article := scoring.Default()
	article.OnDemandCap = scoring.NoCap
	got, err := trace.Simulate(t, article, nil)
	if err != nil {
		return 0, err
	}
	for i := range want {
		if i >= len(got) || got[i] != want[i] {
			n++
		}
	}
	return n, nil
}

// replay is a trace that runs on real workers.
type replay struct {
	trace   *trace.Trace
	jobs    []trace.Job
	weights scoring.Weights
	begin   time.Time
}

// flags are those of the dispatcher. Its decision log keeps all decisions.
func (r *replay) flags() []string {
	w := r.weights
	return []string{
		"--decision-log", "400000", "--on-demand-cap", w.OnDemandCap.String(), "--weights", fmt.Sprintf(
			"priority=%d,ageing=%d,rarity=%d,on-demand=%d,on-demand-ageing=%d", w.Priority, w.Ageing, w.Rarity, w.OnDemand, w.OnDemandAgeing),
	}
}

// run replays the jobs and checks the decisions.
func (r *replay) run(ctx context.Context, env *rig.Rig, dir string) (found verdict, err error) {
	o := stage.Setup{Name: "placement", Daemons: 1, Flags: r.flags(), Remote: true, Direct: true, Plain: true, Hosts: placementHosts}
	if why := rig.NoNetwork(ctx); why != "" {
		fmt.Fprintln(os.Stderr, "reach: SKIPPED: hosts of the placement, so its workers use loopback:", why)
		o.Hosts = 0
	}
	st, err := stage.Start(ctx, env, o)
	if err != nil {
		return found, err
	}
	defer func() { err = errors.Join(err, st.Close(ctx)) }()
	r.begin = time.Now().Add(3 * time.Second)
	self, err := os.Executable()
	if err != nil {
		return found, err
	}
	var logs []string
	var hosts []*rig.Process
	for i := range placementHosts {
		host, way := st.Reach(i)
		log := filepath.Join(st.Dir, fmt.Sprint("offers", i))
		text, err := json.Marshal(hostPlan{Trace: dir, Host: i, Begin: r.begin, Way: way, Log: log})
		if err != nil {
			return found, err
		}
		line := host.Inside(self, hostProcess, string(text))
		p, err := rig.Run("host", nil, line[0], line[1:]...)
		if err != nil {
			return found, err
		}
		defer p.Kill()
		if _, err := p.Expect("ready"); err != nil {
			return found, err
		}
		logs, hosts = append(logs, log), append(hosts, p)
	}
	if err := r.submit(ctx, st); err != nil {
		return found, err
	}
	decisions, err := st.Daemons[0].Decisions(ctx)
	if err != nil {
		return found, err
	}
	for _, p := range hosts {
		if err := p.Stop(); err != nil {
			return found, err
		}
	}
	offers, err := readOffers(r.trace, logs)
	if err != nil {
		return found, err
	}
	return judgePlacements(r.weights, offers, decisions), nil
}

const insertSQL = `INSERT INTO dispatcherd.jobs (type, priority, payload) VALUES ($1, $2, $3::jsonb)`

// submit inserts and requests the jobs at their times, and waits until all have ended.
func (r *replay) submit(ctx context.Context, st *stage.Stage) error {
	db, err := pgxpool.New(ctx, st.URL())
	if err != nil {
		return err
	}
	defer db.Close()
	c, err := client.New(client.Options{Socket: st.Daemons[0].API})
	if err != nil {
		return err
	}
	defer c.Close()
	var all sync.WaitGroup
	failed := make(chan error, len(r.jobs))
	for i := range r.jobs {
		j := &r.jobs[i]
		if err := rig.Pause(ctx, time.Until(r.begin.Add(compressed(j.ArrivalMS)))); err != nil {
			return err
		}
		payload := fmt.Appendf(nil, `{"ms":%g}`, compressed(j.DurationMS).Seconds()*1000)
		all.Go(func() {
			if j.Mode == dispatcherd.Queued {
				_, err := db.Exec(ctx, insertSQL, j.Type, j.Priority, string(payload))
				failed <- err
				return
			}
			_, err := c.Do(ctx, client.Request{
				Type: j.Type, Priority: j.Priority, Payload: payload, Timeout: time.Hour, WaitForWorker: time.Hour,
			})
			failed <- err
		})
	}
	all.Wait()
	close(failed)
	for e := range failed {
		err = errors.Join(err, e)
	}
	if left, e := st.AwaitDrained(ctx, placementWait); left > 0 {
		err = errors.Join(err, e, fmt.Errorf("%d jobs have not ended", left))
	}
	return err
}

// compressed converts a time of the trace into one of the replay.
func compressed(ms int64) time.Duration {
	return time.Duration(float64(ms) / placementSpeed * float64(time.Millisecond))
}

// slotName is the name of the only worker of a slot of the trace.
func slotName(id int64) string { return fmt.Sprint("slot-", id) }

// offer is a time in which a slot is on line.
type offer struct{ from, until time.Time }

// offered is a slot of the trace and when it was on line.
type offered struct {
	types []string
	times []offer
}

// readOffers reads when the hosts added and removed slots.
func readOffers(t *trace.Trace, logs []string) (map[string]*offered, error) {
	all := map[string]*offered{}
	for _, s := range t.Slots {
		all[slotName(s.ID)] = &offered{types: s.Types}
	}
	for _, file := range logs {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		for line := range strings.Lines(string(text)) {
			var at int64
			var name, what string
			if _, err := fmt.Sscan(line, &at, &name, &what); err != nil {
				return nil, fmt.Errorf("%s: %q: %w", file, line, err)
			}
			o, when := all[name], time.Unix(0, at)
			if what == "add" {
				o.times = append(o.times, offer{from: when})
			} else {
				o.times[len(o.times)-1].until = when
			}
		}
	}
	return all, nil
}
