package trial

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/dispatcherd/dispatcherd/tools/lab/internal/history"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/judge"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/rig"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/stage"
)

var readOnly = Trial{
	Name:  "read-only",
	About: "Postgres turns read-only again and again, as a former primary does after a failover",
	Setup: stage.Setup{Daemons: 2, Workers: 3, Flags: patientFlags(quickLease...), Offers: offers, Mix: usual, Types: types},
	Jobs:  [3]int{1000, 5000, 50_000},
	Least: [3]time.Duration{7 * time.Second, 15 * time.Second, 2 * time.Minute},
	Trouble: func(ctx context.Context, s *Scene) error {
		turn := func(how string) error {
			return s.Exec(context.WithoutCancel(ctx), `ALTER SYSTEM SET default_transaction_read_only = `+how, `SELECT pg_reload_conf()`)
		}
		for ctx.Err() == nil {
			s.giveUp(s.slotsOf(nil)) // it may last as long as the lease
			if err := turn("on"); err != nil {
				return err
			}
			s.rest(ctx, 2*time.Second)
			if err := turn("off"); err != nil {
				return err
			}
			s.rest(ctx, time.Second)
		}
		return nil
	},
}

var fullDisk = Trial{
	Name:  "full-disk",
	About: "the disk of the database is full for two seconds again and again (root only)",
	Setup: stage.Setup{Daemons: 2, Workers: 3, Flags: patientFlags(quickLease...), Offers: offers, Mix: usual, Types: types, Disk: 160},
	Jobs:  [3]int{1000, 5000, 10_000},
	Least: [3]time.Duration{7 * time.Second, 15 * time.Second, time.Minute},
	Trouble: func(ctx context.Context, s *Scene) error {
		for ctx.Err() == nil {
			s.giveUp(s.slotsOf(nil)) // it may last as long as the lease
			free, err := s.FillDisk()
			if err != nil {
				return err
			}
			s.rest(ctx, 2*time.Second)
			if err := free(); err != nil {
				return err
			}
			s.rest(ctx, time.Second)
		}
		return s.countRefused(context.WithoutCancel(ctx))
	},
	Verify: func(_ *Scene, h *history.History, _ *judge.Report) []string {
		for i := range h.Batches {
			if h.Batches[i].Fate == history.RolledBack {
				return nil
			}
		}
		return []string{"the disk was never full for a producer"}
	},
}

// countRefused records how many claims and finishes were refused to the
// dispatchers, and requires some.
func (s *Scene) countRefused(ctx context.Context) error {
	var claims, ends float64
	for _, d := range s.Daemons {
		m, err := d.Metrics(ctx)
		if err != nil {
			return err
		}
		claims, ends = claims+m.Refused("claim"), ends+m.Refused("finish")
	}
	s.Note("claims_refused", claims)
	s.Note("ends_refused", ends)
	if claims+ends == 0 {
		return errors.New("the disk was never full for a dispatcher")
	}
	return nil
}

// takeConnections opens connections until the server has no free one.
func (s *Scene) takeConnections(ctx context.Context) (disperse func()) {
	var conns []*pgx.Conn
	for range 200 {
		c, err := pgx.Connect(ctx, s.URL())
		if err != nil {
			break // no connection is free
		}
		conns = append(conns, c)
	}
	return func() {
		for _, c := range conns {
			_ = c.Close(context.WithoutCancel(ctx)) // these sessions are idle
		}
	}
}

var terminated = Trial{
	Name:  "terminated",
	About: "every session of the dispatchers is terminated every 100 ms; every other second no connection is free either",
	Setup: stage.Setup{Daemons: 2, Workers: 3, Flags: patientFlags(), Offers: offers, Mix: usual, Types: types},
	Jobs:  [3]int{1000, 5000, 50_000},
	Least: [3]time.Duration{6 * time.Second, 15 * time.Second, 2 * time.Minute},
	Trouble: func(ctx context.Context, s *Scene) error {
		killer, err := pgx.Connect(ctx, s.URL())
		if err != nil {
			return err
		}
		defer func() { _ = killer.Close(context.WithoutCancel(ctx)) }() // not one of the dispatchers' sessions
		disperse := func() {}
		killed := 0
		s.every(ctx, 100*time.Millisecond, func(i int) {
			var n int
			err = killer.QueryRow(context.WithoutCancel(ctx), `SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
				WHERE datname = current_database() AND application_name LIKE 'dispatcherd %'`).Scan(&n)
			killed += n
			switch i % 20 {
			case 0:
				disperse = s.takeConnections(ctx)
			case 10:
				disperse()
				disperse = func() {}
			}
		})
		disperse()
		s.Note("sessions_terminated", killed)
		return err
	},
	Verify: func(s *Scene, _ *history.History, r *judge.Report) []string {
		if r.Crashes > 0 {
			return []string{fmt.Sprintf("%d crashes were counted and nothing has crashed", r.Crashes)}
		}
		return nil
	},
}

// returnTime is how soon after the end of an outage of Postgres the first job must be
// recorded as done.
const returnTime = 500 * time.Millisecond

// longestOutage is the longest outage by Size. The shortest one takes two seconds.
var longestOutage = [3]time.Duration{4 * time.Second, 8 * time.Second, time.Minute}

var outages = Trial{
	Name: "outages",
	About: fmt.Sprintf(
		"Postgres is down for 2 s to a minute again and again: no attempt is lost, and the first job is recorded as done within "+
			"%v of the return (p99)",
		returnTime,
	),
	Setup: stage.Setup{Daemons: 1, Workers: 2, Offers: offers, Mix: lasting(50), Types: types, Rate: 40},
	Jobs:  [3]int{300, 3000, 3000},
	Least: [3]time.Duration{25 * time.Second, 2 * time.Minute, 12 * time.Minute},
	Trouble: func(ctx context.Context, s *Scene) error {
		for i := 0; ctx.Err() == nil; i++ {
			s.rest(ctx, time.Second)
			s.giveUp(s.slotsOf(nil)) // it may last longer than the lease
			down := 2*time.Second + time.Duration(s.Dice.Int64N(int64(longestOutage[s.Size]-2*time.Second)))
			if err := s.Postgres.Restart(ctx, []rig.End{rig.Immediate, rig.Fast, rig.KillNine}[i%3], down); err != nil {
				return err
			}
			s.returns = append(s.returns, history.Now())
		}
		return nil
	},
	Verify: verifyOutages,
}

func verifyOutages(s *Scene, h *history.History, _ *judge.Report) (failures []string) {
	done := judge.ChangesAfter(h, history.Ended, s.returns)
	lost := 0
	for i := range h.Changes {
		if h.Changes[i].Kind == history.Back {
			lost++
		}
	}
	s.Note("outages", len(s.returns))
	s.Note("first_done_p50_ms", done.At(0.5).Milliseconds())
	s.Note("first_done_p99_ms", done.At(0.99).Milliseconds())
	s.Note("attempts_lost", lost)
	if len(done) < len(s.returns)-1 { // the last outage may end after the last job
		failures = append(failures, fmt.Sprintf("after %d of %d outages no job ended", len(s.returns)-len(done), len(s.returns)))
	}
	if p99 := done.At(0.99); p99 > returnTime {
		failures = append(
			failures,
			fmt.Sprintf("the first job was done %v after the return of Postgres (p99), want at most %v", round(p99), returnTime),
		)
	}
	if lost > 0 {
		failures = append(failures, fmt.Sprintf("%d attempts were lost", lost))
	}
	return failures
}
