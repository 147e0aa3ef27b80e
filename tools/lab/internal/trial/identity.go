package trial

import (
	"context"
	"fmt"
	"time"

	"github.com/dispatcherd/dispatcherd/tools/lab/internal/history"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/judge"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/stage"
)

// setClock shifts the times of heartbeats, as if the database clock were set between two
// heartbeats. The server itself needs the right to set the clock of the machine for that.
var setClock = []string{
	`CREATE TABLE chaos.clock (step interval NOT NULL)`,
	`INSERT INTO chaos.clock VALUES ('0')`,
	`CREATE FUNCTION chaos.set_clock() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$ BEGIN
		NEW.beat_at := NEW.beat_at + (SELECT step FROM chaos.clock);
		RETURN NEW;
	END $$`,
	`CREATE TRIGGER chaos_clock BEFORE UPDATE OF beat_at ON dispatcherd.dispatchers FOR EACH ROW EXECUTE FUNCTION chaos.set_clock()`,
}

// clockSteps are differences between the database clock and the correct time.
var clockSteps = []string{"0", "15 s", "-15 s", "1 h", "-1 h", "0", "400 d", "-400 d"}

var databaseClock = Trial{
	Name:  "database-clock",
	About: "the database clock is set every 300 ms, by up to a year in both directions: no process is declared lost",
	Setup: stage.Setup{Daemons: 2, Workers: 2, Flags: patientFlags(quickLease...), Offers: offers, Mix: usual, Types: types, Rate: 300},
	Jobs:  [3]int{1000, 3000, 20_000},
	Least: [3]time.Duration{8 * time.Second, 15 * time.Second, time.Minute},
	Trouble: func(ctx context.Context, s *Scene) error {
		s.keptFor("none", 0)
		err := s.Exec(context.WithoutCancel(ctx), setClock...)
		for i := 0; err == nil && ctx.Err() == nil; i++ {
			err = s.Exec(context.WithoutCancel(ctx), fmt.Sprintf(`UPDATE chaos.clock SET step = '%s'`, clockSteps[i%len(clockSteps)]))
			s.rest(ctx, 300*time.Millisecond)
		}
		return err
	},
	Verify: func(_ *Scene, h *history.History, r *judge.Report) (failures []string) {
		for i := range h.Changes {
			if h.Changes[i].Kind == history.Lost && h.Changes[i].At < h.Over {
				failures = append(failures, fmt.Sprintf("dispatcher %d was declared lost", h.Changes[i].Dispatcher))
			}
		}
		if r.Crashes > 0 {
			failures = append(failures, fmt.Sprintf("%d crashes were counted and nothing has crashed", r.Crashes))
		}
		return failures
	},
}

// restores put the tables of dispatchers and claims into an earlier state.
var restores = []string{
	`TRUNCATE dispatcherd.dispatchers, dispatcherd.claims RESTART IDENTITY`,
	`UPDATE dispatcherd.dispatchers SET beats = -1 WHERE lost_at IS NULL`,
	`TRUNCATE dispatcherd.dispatchers RESTART IDENTITY`,
}

var restore = Trial{
	Name: "restore",
	About: "an earlier state of the table of dispatchers is restored while one dispatcher lives and one is dead: the living " +
		"one joins again, and the jobs of both run again",
	Setup: stage.Setup{Daemons: 2, Workers: 3, Flags: patientFlags(quickLease...), Offers: offers, Mix: lasting(300), Types: types, Rate: 60},
	Jobs:  [3]int{300, 1000, 5000},
	Least: [3]time.Duration{9 * time.Second, 18 * time.Second, 2 * time.Minute},
	Trouble: func(ctx context.Context, s *Scene) error {
		for i := 0; ctx.Err() == nil; i++ {
			s.rest(ctx, time.Second)
			s.giveUp(s.slotsOf(nil))
			if err := s.killHost(ctx, s.Daemons[i%2]); err != nil {
				return err
			}
			if err := s.Exec(context.WithoutCancel(ctx), restores[i%len(restores)]); err != nil {
				return err
			}
			s.rest(ctx, 2*time.Second)
		}
		return nil
	},
	Verify: func(s *Scene, h *history.History, _ *judge.Report) []string {
		ids := map[int32]bool{}
		for i := range h.Changes {
			if h.Changes[i].Kind == history.Claimed {
				ids[h.Changes[i].Dispatcher] = true
			}
		}
		s.Note("dispatcher_ids", len(ids))
		if len(ids) <= len(s.Daemons) {
			return []string{"no dispatcher joined again"}
		}
		return nil
	},
}
