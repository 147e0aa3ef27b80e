package trial

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/dispatcherd/dispatcherd/tools/lab/internal/history"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/judge"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/stage"
)

// linesPerSecond bounds the log lines that connections cause: ten each about sessions that
// begin, sessions that end and rejected connections, and a few others.
const linesPerSecond = 40

var connectionFlood = Trial{
	Name: "connection-flood",
	About: fmt.Sprintf(
		"a user connects, says hello and closes as fast as possible: jobs of a good worker start and are recorded within %v (p99), "+
			"and the dispatcher logs at most %d lines per second",
		promptly,
		linesPerSecond,
	),
	Setup: stage.Setup{
		Daemons: 1,
		Workers: 1,
		Flags:   patientFlags("--log-level", "info"),
		Offers:  offers,
		Mix:     lasting(5),
		Types:   types,
		Rate:    200,
	},
	Jobs:  [3]int{1000, 2000, 20_000},
	Least: [3]time.Duration{5 * time.Second, 10 * time.Second, time.Minute},
	Trouble: func(ctx context.Context, s *Scene) error {
		s.keptFor("none", 0)
		from := time.Now()
		n, err := s.Flood(ctx, s.Daemons[0])
		s.Note("connections_per_second", int(float64(n)/time.Since(from).Seconds()))
		return err
	},
	Verify: func(s *Scene, h *history.History, r *judge.Report) []string {
		failures := append(untroubled(s, h, r), s.checkOthers(h, r, "none", promptly)...)
		d := s.Daemons[0]
		lines := d.LogLines()
		life := d.Lives()[0]
		bound := linesPerSecond * int(1+time.Duration(life.Died-life.Started).Seconds())
		s.Note("log_lines", lines)
		if lines > bound {
			r.Excess += lines - bound
			failures = append(failures, fmt.Sprintf("the dispatcher logged %d lines, want at most %d", lines, bound))
		}
		return failures
	},
}

// smallQueue gives a database a notification queue that 8 MB fill instead of 8 GB, and
// dispatcherd.may_notify the threshold of one half of it. Sessions that have prepared
// statements would still call the original pg_notify, so they are ended.
var smallQueue = []string{
	`ALTER FUNCTION pg_catalog.pg_notify RENAME TO pg_notify_unbounded`,
	`CREATE FUNCTION pg_catalog.pg_notify(channel text, payload text) RETURNS void LANGUAGE plpgsql AS $$ BEGIN
		IF pg_notification_queue_usage() > 0.001 THEN
			RAISE program_limit_exceeded USING MESSAGE = 'too many notifications in the NOTIFY queue';
		END IF;
		PERFORM pg_notify_unbounded(channel, payload);
	END $$`,
	`CREATE OR REPLACE FUNCTION dispatcherd.may_notify() RETURNS boolean LANGUAGE sql VOLATILE PARALLEL RESTRICTED
		AS 'SELECT pg_catalog.pg_notification_queue_usage() OPERATOR(pg_catalog.<) 0.0005'`,
	endSessions,
}

const endSessions = `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()`

// unnotified is how soon a job must start while nothing notifies. Until a dispatcher checks
// the queue, up to 5 s later, it scans every second. After that it polls every 200 ms.
const unnotified = 2 * time.Second

var queueFlood = Trial{
	Name: "notification-flood",
	About: fmt.Sprintf(
		"a session that listens keeps a transaction open, and another one fills the notification queue: inserts succeed, jobs "+
			"start within %v (p99), "+
			"and the jobs of a dispatcher that is killed with its workers run again within %v",
		unnotified,
		time.Second+grace,
	),
	Setup: stage.Setup{
		Daemons: 2,
		Workers: 2,
		Flags:   patientFlags("--resume", "1s"),
		Offers:  offers,
		Mix:     lasting(300),
		Types:   types,
		Rate:    100,
	},
	Jobs:  [3]int{500, 1500, 10_000},
	Least: [3]time.Duration{8 * time.Second, 20 * time.Second, 2 * time.Minute},
	Before: func(ctx context.Context, s *Scene) error {
		return s.Exec(ctx, smallQueue...)
	},
	Trouble: func(ctx context.Context, s *Scene) error {
		for i := 0; ctx.Err() == nil; i++ {
			s.giveUp(s.slotsOf(nil))
			if err := s.fillQueue(ctx, s.Daemons[i%2]); err != nil {
				return err
			}
		}
		return nil
	},
	Verify: func(s *Scene, h *history.History, r *judge.Report) (failures []string) {
		for i := range h.Batches {
			if h.Batches[i].Fate != history.Committed {
				r.Excess++
			}
		}
		if r.Excess > 0 {
			failures = append(failures, fmt.Sprintf("%d inserts were refused", r.Excess))
		}
		again := judge.AfterLosses(h, s.killed)
		s.Note("dispatchers_killed", len(s.killed))
		s.Note("run_again", len(again))
		s.Note("again_max", again.At(1))
		if worst := again.At(1); len(again) == 0 || worst > time.Second+grace {
			failures = append(
				failures,
				fmt.Sprintf(
					"%d jobs of killed dispatchers ran again, the last one after %v, want at most %v",
					len(again),
					round(worst),
					time.Second+grace,
				),
			)
		}
		return append(failures, s.checkOthers(h, r, "none", unnotified)...)
	},
}

// fillQueue fills the notification queue while a session blocks it. Meanwhile it kills a
// dispatcher and its workers.
func (s *Scene) fillQueue(ctx context.Context, d *stage.Daemon) error {
	whole := context.WithoutCancel(ctx)
	blocker, err := pgx.Connect(whole, s.URL())
	if err != nil {
		return err
	}
	defer blocker.Close(whole)
	for _, sql := range []string{`LISTEN chaos`, `BEGIN`, `SELECT 1`} {
		if _, err := blocker.Exec(whole, sql); err != nil {
			return err
		}
	}
	if err := s.Exec(whole, `SELECT pg_notify_unbounded('chaos_flood', rpad(i::text, 7500)) FROM generate_series(1, 1500) AS i`); err != nil {
		return err
	}
	s.rest(ctx, time.Second)
	err = s.killHost(whole, d)
	s.rest(ctx, 2*time.Second)
	return err
}
