package stage

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dispatcherd/dispatcherd/tools/lab/internal/history"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/rig"
)

// AwaitDrained waits until no job waits or runs. It returns the number of those
// that still do at the deadline.
func (s *Stage) AwaitDrained(ctx context.Context, limit time.Duration) (left int, err error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		left, err = s.Number(
			context.WithoutCancel(ctx),
			`SELECT (SELECT count(*) FROM dispatcherd.jobs_live) + (SELECT count(*) FROM dispatcherd.jobs_waiting)`,
		)
		if err != nil || left == 0 || ctx.Err() != nil {
			return left, err
		}
		_ = rig.Pause(ctx, 50*time.Millisecond)
	}
}

// Number returns the single number that a query returns.
func (s *Stage) Number(ctx context.Context, sql string, args ...any) (int, error) {
	return rig.Number(ctx, s.URL(), sql, args...)
}

// Database is the name of the experiment's database.
func (s *Stage) Database() string { return s.database }

// URL is the connection string of the experiment's database, without proxies.
func (s *Stage) URL() string { return s.Postgres.URL(s.database) }

// Exec runs statements in the experiment's database, without proxies.
func (s *Stage) Exec(ctx context.Context, statements ...string) error {
	return s.Postgres.Exec(ctx, s.database, statements...)
}

// AwaitSlots waits until every slot of every worker is registered and free and no
// dispatcher has a job in hand. It returns how many slots are missing or in use at
// the deadline, and a description.
func (s *Stage) AwaitSlots(ctx context.Context, limit time.Duration) (leaked int, why string) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		leaked, why = s.missingSlots(context.WithoutCancel(ctx))
		if leaked == 0 || ctx.Err() != nil {
			return leaked, why
		}
		_ = rig.Pause(ctx, 50*time.Millisecond)
	}
}

// missingSlots returns how many slots are missing or in use. A remote worker may be connected to any daemon.
func (s *Stage) missingSlots(ctx context.Context) (leaked int, why string) {
	if s.remote != nil {
		return s.slotsOf(ctx, s.Daemons...)
	}
	for _, d := range s.Daemons {
		n, text := s.slotsOf(ctx, d)
		leaked, why = leaked+n, why+text
	}
	return leaked, why
}

// slotsOf returns how many of the slots of some daemons are missing or in use.
func (s *Stage) slotsOf(ctx context.Context, daemons ...*Daemon) (int, string) {
	want := 0
	for _, w := range s.Workers {
		if w.Daemon == nil || slices.Contains(daemons, w.Daemon) {
			want += w.Slots
		}
	}
	var slots, free, inHand, unrecorded int
	var names []string
	for _, d := range daemons {
		m, err := d.Metrics(ctx)
		if lives := d.Lives(); s.remote != nil && lives[len(lives)-1].Died != 0 {
			continue // it was killed, and its workers are elsewhere
		}
		if err != nil {
			return max(want, 1), fmt.Sprintf("%s: %v; ", d.Name, err)
		}
		state := func(what string) int { return int(m.State(what)) }
		slots, free, inHand, unrecorded = slots+state("slots"), free+state("slots_free"), inHand+state("in_hand"), unrecorded+state("unrecorded")
		names = append(names, d.Name)
	}
	off := max(want-slots, slots-want) + slots - free + inHand + unrecorded
	if off == 0 {
		return 0, ""
	}
	return off, fmt.Sprintf("%s: want %d free slots and nothing in hand, got %d slots, %d free, %d in hand, %d unrecorded; ",
		strings.Join(names, "+"), want, slots, free, inHand, unrecorded)
}

// History reads all logs. Call it after StopAll, when all processes have ended.
func (s *Stage) History(ctx context.Context) (*history.History, error) {
	h := &history.History{Batches: s.Producer.log, Calls: s.calls, Over: s.over}
	h.Batches = append(h.Batches, rowsOf(s.calls)...)
	var err error
	if h.Processes, err = s.Processes(); err != nil {
		return nil, err
	}
	for i := range h.Processes { // jobs of structures are judged by their rows, and those of a hostile user are not judged
		p := &h.Processes[i]
		p.Runs = slices.DeleteFunc(p.Runs, func(e history.Execution) bool { return history.IsStructured(e.Type) || e.Type == history.Hostile })
	}
	return h, s.readPostgres(ctx, h)
}

// Processes reads the logs of the workers. Call it after StopAll.
func (s *Stage) Processes() (all []history.Process, err error) {
	for _, w := range s.Workers {
		lives, err := w.read()
		if err != nil {
			return nil, err
		}
		all = append(all, lives...)
	}
	return all, nil
}
