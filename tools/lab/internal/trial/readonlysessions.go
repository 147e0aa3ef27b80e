package trial

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dispatcherd/dispatcherd/tools/lab/internal/history"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/judge"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/stage"
)

// cured is how long a dispatcher may take until it notices that its sessions are read-only or ended, and has new ones.
const cured = time.Second

var readOnlySessions = Trial{
	Name: "read-only-sessions",
	About: fmt.Sprintf("the sessions of dispatchers are ended while new ones are read-only, and turn read-only while new ones are not: "+
		"nothing is lost, /readyz tells the truth, and %v later users wait at most %d times as long as before (p99)", cured, unfair),
	Setup: oneOfAllKinds(),
	Jobs:  [3]int{300, 1000, 5000},
	Least: [3]time.Duration{13 * time.Second, 40 * time.Second, 3 * time.Minute},
	Trouble: func(ctx context.Context, s *Scene) (err error) {
		s.keptFor("none", 0)
		end, err := s.workHonestly(ctx, s.Daemons[0])
		if err != nil {
			return err
		}
		watched := s.watchReady(ctx)
		defer func() {
			err = errors.Join(err, end())
			<-watched
		}()
		s.rest(ctx, settled)
		from := history.Now()
		s.rest(ctx, s.least/4)
		s.without = []span{{from: from, to: history.Now()}}
		s.rest(ctx, settled)
		for ctx.Err() == nil && err == nil {
			err = errors.Join(s.ageSessions(ctx), s.refuseWrites(ctx))
		}
		return err
	},
	Verify: func(s *Scene, h *history.History, r *judge.Report) []string {
		return append(s.verifyHonest(h, r), s.verifyReady()...)
	},
}

// oneOfAllKinds is allKinds with one dispatcher, which executes all kinds of statements all the time: a dispatcher that had an error and
// sends no statement of this kind any more is not ready for a minute.
func oneOfAllKinds() stage.Setup {
	o := allKinds()
	o.Daemons = 1
	return o
}

// endDispatchers ends the sessions of dispatchers.
const endDispatchers = `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
	WHERE datname = current_database() AND application_name LIKE 'dispatcherd %'`

// setDatabase executes an ALTER DATABASE, which affects new sessions. It uses another database, because the session must not be read-only.
func (s *Scene) setDatabase(ctx context.Context, what string) error {
	return s.Postgres.Exec(context.WithoutCancel(ctx), "postgres", `ALTER DATABASE `+s.Database()+` `+what)
}

// refuseWrites ends the sessions of dispatchers while new ones are read-only, and makes new ones usual again without ending any.
func (s *Scene) refuseWrites(ctx context.Context) error {
	if err := s.setDatabase(ctx, `SET default_transaction_read_only = on`); err != nil {
		return err
	}
	if err := s.Exec(context.WithoutCancel(ctx), endDispatchers); err != nil {
		return err
	}
	s.untilCured(ctx, "refused writes", 2*cured, &s.notReady)
	if err := s.setDatabase(ctx, `RESET default_transaction_read_only`); err != nil {
		return err
	}
	s.untilCured(ctx, "new sessions", 2*cured, &s.ready) // users may still wait because of the outage
	return nil
}

// ageSessions makes all sessions of dispatchers read-only for ever, while new ones are not.
func (s *Scene) ageSessions(ctx context.Context) error {
	whole := context.WithoutCancel(ctx)
	if err := s.Exec(whole, endDispatchers); err != nil { // so that none has the settings of the last time
		return err
	}
	s.untilCured(ctx, "ended sessions", cured)
	if err := s.setDatabase(ctx, `SET default_transaction_read_only = off`); err != nil {
		return err
	}
	if err := s.Exec(whole, `ALTER SYSTEM SET default_transaction_read_only = on`, `SELECT pg_reload_conf()`); err != nil {
		return err
	}
	s.untilCured(ctx, "read-only sessions", 3*cured, &s.ready, &s.with)
	s.rest(ctx, cured) // what has begun in this time ends before the next fault
	return errors.Join(
		s.Exec(whole, `ALTER SYSTEM RESET default_transaction_read_only`, `SELECT pg_reload_conf()`),
		s.setDatabase(ctx, `RESET default_transaction_read_only`),
	)
}

// untilCured rests, and adds the time after that which a cure may take to lists of periods.
func (s *Scene) untilCured(ctx context.Context, what string, rest time.Duration, lists ...*[]span) {
	from := history.Now() + cured.Nanoseconds()
	s.rest(ctx, rest)
	for _, list := range lists {
		*list = append(*list, span{from, history.Now(), what})
	}
}
