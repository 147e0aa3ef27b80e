package schedulestest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/claim/schedules"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/daemon/controller"
	"github.com/dispatcherd/dispatcherd/internal/pgtest"
	"github.com/dispatcherd/dispatcherd/internal/schedule"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

// both are the tables in Postgres and the fake.
type both struct {
	t    *testing.T
	db   *pgxpool.Pool
	fake *Tables
}

func (b *both) exec(sql string, args ...any) {
	b.t.Helper()
	_, err := b.db.Exec(b.t.Context(), sql, args...)
	require.NoError(b.t, err)
}

// controllers returns the two of a dispatcher in a term.
func (b *both) controllers(dispatcher int32, term int64) [2]controller.Table {
	do := func(ctx context.Context, f func(context.Context, *pgx.Conn) (int, error)) error {
		return b.db.AcquireFunc(ctx, func(c *pgxpool.Conn) error {
			_, err := f(ctx, c.Conn())
			return err
		})
	}
	return [2]controller.Table{schedules.Controller{Do: do, Dispatcher: dispatcher, Term: term}, Controller{b.fake, dispatcher, term}}
}

// plain removes what the clocks of the two decide.
func plain(row *schedules.Row) {
	if row != nil {
		row.Since = time.Time{}
		if row.Handled != nil {
			*row.Handled = row.Handled.UTC()
		}
	}
}

// same calls f with the two and requires equal results.
func same[T any](b *both, two [2]controller.Table, f func(controller.Table) (T, error)) T {
	b.t.Helper()
	want, err := f(two[0])
	require.NoError(b.t, err)
	got, err := f(two[1])
	require.NoError(b.t, err)
	require.Equal(b.t, want, got)
	return want
}

// Random statements have the same results with Postgres and with the fake.
func TestFakeEqualsPostgres(t *testing.T) {
	db, err := pgxpool.New(t.Context(), pgtest.New(t))
	require.NoError(t, err)
	t.Cleanup(db.Close)
	b := &both{t: t, db: db, fake: New(time.Now)}
	rng := rand.New(rand.NewPCG(1, 1))
	base := time.Now().Truncate(time.Minute).UTC()
	var (
		applied []schedules.Edit
		terms   int64
		last    int64
	)
	outcomes := map[string]int{}
	two := b.controllers(1, 1)
	for range 1500 {
		id := 1 + rng.Int64N(max(last, 1)+1)
		switch rng.IntN(9) {
		case 0:
			if last++; last > 12 {
				last = 12
				continue
			}
			s := contract.SchedulePlan{Name: fmt.Sprint("s", last), Kind: contract.Cron, Spec: "* * * * *", TimeZone: "UTC", CatchUp: contract.Duration(time.Hour), CatchUpMost: 1}
			b.exec(`INSERT INTO dispatcherd.schedules (name, kind, spec, type, overlap) VALUES ($1, 'cron', $2, 'pdf', 'allow_all')`, s.Name, s.Spec)
			require.Equal(t, last, b.fake.Insert(s))
		case 1:
			b.update(id, rng)
		case 2:
			if rng.IntN(10) == 0 {
				b.exec(`DELETE FROM dispatcherd.schedules WHERE id = $1`, id)
				if b.fake.Row(id).ID != 0 {
					b.fake.Delete(id)
				}
			}
		case 3:
			if rng.IntN(4) == 0 { // the former controller continues in half of the cases
				terms++
				dispatcher := 1 + rng.Int32N(2)
				b.exec(`UPDATE dispatcherd.controller SET dispatcher = $1, term = $2`, dispatcher, terms)
				require.Equal(t, terms, b.fake.Elect(dispatcher))
				if rng.IntN(2) == 0 {
					two = b.controllers(dispatcher, terms)
				}
			}
		case 4:
			same(b, two, func(c controller.Table) ([]schedules.Row, error) {
				rows, err := c.Load(t.Context(), id-1)
				for i := range rows {
					plain(&rows[i])
				}
				return append([]schedules.Row{}, rows...), err
			})
		case 5:
			applied = same(b, two, func(c controller.Table) ([]schedules.Edit, error) {
				edits, err := c.Edits(t.Context(), applied, []int64{id})
				for i := range edits {
					plain(edits[i].Row)
				}
				return edits, err
			})
			applied = applied[:len(applied)-1]
		case 6:
			same(b, two, func(c controller.Table) ([]int64, error) {
				locked, err := c.Report(t.Context(), []schedules.Problem{{Schedule: id, Version: b.fake.Row(id).Version - int64(len(applied)%2), Reason: "why"}})
				return append([]int64{}, locked...), err
			})
		default:
			ticks := b.ticks(rng, base, max(last, 1))
			for _, outcome := range same(b, two, func(c controller.Table) ([]string, error) {
				made, err := c.Make(t.Context(), ticks)
				list := make([]string, len(made))
				for i := range made {
					list[i] = made[i].Outcome
				}
				return list, err
			}) {
				outcomes[outcome]++
			}
		}
	}
	for _, outcome := range []string{"", contract.TickRun, contract.TickMissed, contract.TickExists, contract.TickChanged} {
		require.Greater(t, outcomes[outcome], 10, "%q: %v", outcome, outcomes)
	}
}

// update edits a schedule, sometimes without a change.
func (b *both) update(id int64, rng *rand.Rand) {
	minute := fmt.Sprintf("%d * * * *", rng.IntN(2))
	pause, most := rng.IntN(6) == 0, rng.IntN(2)
	b.exec(`UPDATE dispatcherd.schedules SET spec = $2, paused = $3, catch_up_most = $4 WHERE id = $1`, id, minute, pause, most)
	if b.fake.Row(id).ID != 0 {
		b.fake.Update(id, func(s *contract.SchedulePlan) { s.Spec, s.Paused, s.CatchUpMost = minute, pause, most })
	}
}

// ticks returns ticks of which some are outdated, and some exist.
func (b *both) ticks(rng *rand.Rand, base time.Time, last int64) (ticks []schedule.Tick) {
	seen := map[int64]bool{}
	for range 1 + rng.IntN(4) {
		id := 1 + rng.Int64N(last)
		if seen[id] {
			continue // the ticks of a schedule are in order
		}
		seen[id] = true
		version := b.fake.Row(id).Version
		if rng.IntN(6) == 0 {
			version++
		}
		n := max(len(b.fake.Ticks(id))-1+rng.IntN(4), 0)
		for i := range 1 + rng.IntN(2) {
			at := base.Add(time.Duration(n+i) * time.Minute)
			tick := schedule.Tick{Schedule: id, Version: version, Occasion: schedule.CronOccasion(at), Planned: at, RunAt: at}
			if i == 0 && rng.IntN(4) == 0 {
				tick.Missed = 3
			}
			ticks = append(ticks, tick)
		}
	}
	return ticks
}
