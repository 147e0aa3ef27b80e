package stage

import (
	"context"
	"fmt"
	"syscall"

	"github.com/jackc/pgx/v5"

	"github.com/dispatcherd/dispatcherd/tools/lab/internal/history"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/rig"
)

// TimedType is the type of the jobs that are measured.
const TimedType = "work"

// Timed is the setup of a measurement of time: daemons without proxies, workers without logs.
func Timed(name string, daemons, workers, slots int, flags ...string) Setup {
	return Setup{
		Name:    name,
		Daemons: daemons,
		Workers: workers,
		Flags:   flags,
		Plain:   true,
		Direct:  true,
		Offers: []Offer{
			{Slots: slots, Types: []string{TimedType}},
		},
		Mix:   func(n int64) history.Work { return history.Work{N: n, Type: TimedType} },
		Types: []string{TimedType},
	}
}

// Jobs are jobs that do nothing.
type Jobs struct {
	N             int
	Column, Value string // a column of their rows, and an expression of i, which counts them from 1; "" = none
	// Inserted is called when they are committed; nil = nothing.
	Inserted func() error
}

// Drain inserts the jobs in one transaction and returns the rate from the first start to the last end.
func (j Jobs) Drain(ctx context.Context, st *Stage) (rate float64, err error) {
	conn, err := pgx.Connect(ctx, st.URL())
	if err != nil {
		return 0, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	for _, sql := range []string{`TRUNCATE dispatcherd.jobs_done`, `VACUUM (ANALYZE) dispatcherd.jobs_live`} {
		if _, err := conn.Exec(ctx, sql); err != nil {
			return 0, err
		}
	}
	syscall.Sync()
	var first int64
	if err := conn.QueryRow(ctx, `SELECT nextval('dispatcherd.job_ids')`).Scan(&first); err != nil {
		return 0, err
	}
	if err := j.insert(ctx, conn); err != nil {
		return 0, err
	}
	if _, err := rig.AwaitEnded(ctx, st.URL(), first, j.N); err != nil {
		return 0, err
	}
	var done int
	err = conn.QueryRow(ctx, `SELECT count(*), count(*) / extract(epoch FROM max(finished_at) - min(started_at))
		FROM dispatcherd.jobs_done WHERE type = $1`, TimedType).
		Scan(&done, &rate)
	if err == nil && done != j.N {
		err = fmt.Errorf("%d of %d jobs are done", done, j.N)
	}
	return rate, err
}

func (j Jobs) insert(ctx context.Context, conn *pgx.Conn) error {
	column, value := j.Column, j.Value
	if column == "" {
		column, value = "keys", "NULL"
	}
	_, err := conn.Exec(ctx, fmt.Sprintf(
		`INSERT INTO dispatcherd.jobs (type, payload, %s) SELECT '%s', '{}', %s FROM generate_series(1, %d) i`,
		column, TimedType, value, j.N))
	if err != nil || j.Inserted == nil {
		return err
	}
	return j.Inserted()
}
