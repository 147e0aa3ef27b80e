package stage

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/dispatcherd/dispatcherd/tools/lab/internal/rig"
)

// insertSchedules inserts schedules that make up for any outage.
func (s *Stage) insertSchedules(ctx context.Context, n int) error {
	if n == 0 {
		return nil
	}
	return s.Exec(ctx, fmt.Sprintf(`INSERT INTO dispatcherd.schedules (name, kind, spec, type, overlap, catch_up, catch_up_most)
		SELECT 'tick-' || i, 'cron', '* * * * * *', 'tick', 'allow_all', '1 day', 10000 FROM generate_series(1, %d) i`, n))
}

// TicksSQL counts the faults of schedules with an occasion in each second after their since, and
// before their ends_at or an instant $1: jobs of type tick that no tick names and occasions with several
// jobs; occasions without a job.
const TicksSQL = `
SELECT (SELECT coalesce(sum(n - 1), 0) FROM (SELECT count(*) AS n FROM dispatcherd.ticks WHERE job_id IS NOT NULL
	GROUP BY schedule_id, planned_at) g)
	+ (SELECT count(*) FROM dispatcherd.jobs j
		WHERE j.type = 'tick' AND NOT EXISTS (SELECT FROM dispatcherd.ticks t WHERE t.job_id = j.id)) AS twice,
	count(*) FILTER (WHERE NOT EXISTS (SELECT FROM dispatcherd.ticks t JOIN dispatcherd.jobs j ON j.id = t.job_id
		WHERE t.schedule_id = s.id AND t.planned_at = o.at)) AS lost,
	count(*) AS wanted
FROM dispatcherd.schedules s, generate_series(date_trunc('second', s.since) + interval '1 second',
	least(s.ends_at, $1) - interval '1 second', interval '1 second') o (at)`

// tickTime bounds the wait for overdue ticks: until another dispatcher takes over, and a bit more.
const tickTime = time.Minute

// EndTicks waits until the ticks up to now are made, counts their faults, and deletes their jobs.
func (s *Stage) EndTicks(ctx context.Context) (twice, lost int, err error) {
	conn, err := pgx.Connect(ctx, s.URL())
	if err != nil {
		return 0, 0, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	var until time.Time
	if err := conn.QueryRow(ctx, `SELECT date_trunc('second', clock_timestamp())`).Scan(&until); err != nil {
		return 0, 0, err
	}
	for begun, behind := time.Now(), 1; behind > 0 && time.Since(begun) < tickTime; _ = rig.Pause(ctx, 50*time.Millisecond) {
		if err := conn.QueryRow(ctx, `SELECT count(*) FROM dispatcherd.schedules s
			WHERE coalesce((SELECT max(t.planned_at) FROM dispatcherd.ticks t WHERE t.schedule_id = s.id),
				'-infinity') < $1`, until).Scan(&behind); err != nil {
			return 0, 0, err
		}
	}
	if _, err := conn.Exec(ctx, `UPDATE dispatcherd.schedules SET paused = true`); err != nil {
		return 0, 0, err
	}
	var wanted int
	if err := conn.QueryRow(ctx, TicksSQL, until).Scan(&twice, &lost, &wanted); err != nil {
		return 0, 0, fmt.Errorf("counting ticks: %w", err)
	}
	return twice, lost, s.Exec(
		ctx,
		`DELETE FROM chaos.audit a USING dispatcherd.jobs j WHERE j.id = a.job AND j.type = 'tick'`,
		`DELETE FROM dispatcherd.jobs_live WHERE type = 'tick'`,
	)
}
