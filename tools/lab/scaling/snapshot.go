package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/dispatcherd/dispatcherd/tools/lab/internal/chart"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/rig"
)

// moment is one window while a snapshot is held.
type moment struct {
	window
	Minute     float64
	DeadTuples int64
	TableBytes int64
	IndexBytes int64
}

// snapshotRun is a load of some minutes.
type snapshotRun struct {
	Held    bool
	Moments []moment
}

// snapshot compares the rate over minutes with and without a transaction that only
// keeps its snapshot, so that no dead row can be removed.
func (s *study) snapshot(ctx context.Context) error {
	var runs []snapshotRun
	for _, held := range []bool{true, false} {
		r, err := s.minutesOf(ctx, held)
		if err != nil {
			return err
		}
		first, last := r.minute(0), r.minute(s.minutes-1)
		fmt.Printf("snapshot held=%t: first minute %.0f jobs/s, last %.0f (%.2f ×)\n", held, first, last, last/first)
		runs = append(runs, r)
	}
	draw := func(title, unit string, what func(moment) float64) chart.Panel {
		p := chart.Panel{Title: title, XName: "minutes", YName: unit}
		for _, r := range runs {
			l := chart.Line{Name: map[bool]string{true: "snapshot held", false: "none held"}[r.Held], Dashed: !r.Held}
			for _, m := range r.Moments {
				l.Points = append(l.Points, chart.Point{X: m.Minute, Y: what(m)})
			}
			p.Lines = append(p.Lines, l)
		}
		return p
	}
	return s.keep("snapshot",
		draw("Rate while a snapshot is held, with a producer", "jobs/s", func(m moment) float64 { return m.Rate }),
		draw("Dead rows in the hot table", "rows", func(m moment) float64 { return float64(m.DeadTuples) }),
		draw("Size of the hot table's indexes", "MB", func(m moment) float64 { return float64(m.IndexBytes) / 1e6 }),
	)
}

// minute returns the mean rate of the minute that begins at from.
func (r snapshotRun) minute(from float64) float64 {
	sum, n := 0.0, 0
	for _, m := range r.Moments {
		if m.Minute > from && m.Minute <= from+1.01 {
			sum += m.Rate
			n++
		}
	}
	return sum / float64(max(n, 1))
}

const snapshotWindow = 10 * time.Second

// everyMinute contains the server's settings for this curve. In runs of seconds no
// checkpoint falls into the measured time, see rig.Settings. In a run of ten
// minutes some minutes would contain a checkpoint and others none. So each minute
// has one, by time.
var everyMinute = map[string]string{
	"checkpoint_timeout": "1min", // the log of one minute is a quarter of max_wal_size, which therefore starts no checkpoint
}

// runIn is the load before the first minute without a held snapshot, so that a
// checkpoint runs in the first minute as well.
const runIn = time.Minute

func (s *study) minutesOf(ctx context.Context, held bool) (r snapshotRun, err error) {
	r.Held = held
	one := usual
	one.Backlog = 100_000
	l, err := start(ctx, s.rig, one)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, l.end()) }()
	if err := rig.Pause(ctx, runIn); err != nil {
		return r, err
	}
	conn, err := pgx.Connect(ctx, l.dsn)
	if err != nil {
		return r, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if held {
		for _, sql := range []string{"BEGIN ISOLATION LEVEL REPEATABLE READ", "SELECT txid_current_snapshot()"} {
			if _, err := conn.Exec(ctx, sql); err != nil {
				return r, err
			}
		}
	}
	began := time.Now()
	before, err := l.read(ctx)
	if err != nil {
		return r, err
	}
	for time.Since(began).Minutes() < s.minutes-0.05 {
		if err := rig.Pause(ctx, snapshotWindow); err != nil {
			return r, err
		}
		after, err := l.read(ctx)
		if err != nil {
			return r, err
		}
		m := moment{window: between(before, after), Minute: time.Since(began).Minutes()}
		before = after
		if err := m.size(ctx, l.dsn); err != nil {
			return r, err
		}
		r.Moments = append(r.Moments, m)
		fmt.Printf(
			"held=%t minute %5.2f  %7.0f jobs/s  %9d dead rows  table %5.0f MB  indexes %5.0f MB  claim %.1f ms, fetch %.1f ms, finish %.1f ms\n",
			held,
			m.Minute,
			m.Rate,
			m.DeadTuples,
			float64(m.TableBytes)/1e6,
			float64(m.IndexBytes)/1e6,
			m.ClaimMean,
			m.FetchMean,
			m.FinishMean,
		)
	}
	return r, nil
}

// size reads the size of the hot table.
func (m *moment) size(ctx context.Context, dsn string) error {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	return conn.QueryRow(ctx, `SELECT n_dead_tup, pg_relation_size(relid), pg_indexes_size(relid)
		FROM pg_stat_user_tables WHERE relid = 'dispatcherd.jobs_live'::regclass`).Scan(&m.DeadTuples, &m.TableBytes, &m.IndexBytes)
}
