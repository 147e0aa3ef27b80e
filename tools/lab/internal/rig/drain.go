package rig

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/dispatcherd/dispatcherd/tools/lab/internal/program"
)

// The usual workers: the number of processes, and the slots of each.
const (
	workers = 4
	slots   = 250
)

// Drained is the execution of a table of jobs.
type Drained struct {
	Jobs                      int
	From, To                  time.Time     // from the start of the first job until the end of the last one is in Postgres
	Daemon, Postgres, Workers time.Duration // processor time
}

// Rate returns jobs per second.
func (d Drained) Rate() float64 { return float64(d.Jobs) / d.To.Sub(d.From).Seconds() }

// Drain executes the only n jobs of a database with the daemon and the workers of a commit. It
// reads the end from the table, so that it needs no metric of the daemon, and checks that
// every job is done.
func (r *Rig) Drain(ctx context.Context, p Programs, dsn string, n int, flags ...string) (s Drained, err error) {
	return r.DrainOver(ctx, p, program.Dispatcher{}, dsn, n, flags...)
}

// DrainOver is Drain with workers that reach the daemon in the given way; the zero way is its Unix socket.
func (r *Rig) DrainOver(
	ctx context.Context, p Programs, way program.Dispatcher, dsn string, n int, flags ...string,
) (s Drained, err error) {
	d, err := r.ready(ctx, Launch{Program: p.Daemon, Name: "daemon", DSN: dsn, Flags: flags})
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	daemon, postgres := CPU(d.PID()), r.PostgresCPU()
	if way == (program.Dispatcher{}) {
		way.Socket = d.Socket
	}
	c, err := crew(p.Noop, way, workers, slots, TypeName(0))
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, c.Stop()) }()
	s.Jobs = n
	if s.From, err = c.Begun(); err != nil {
		return s, err
	}
	if s.To, err = AwaitEnded(ctx, dsn, 0, n); err != nil {
		return s, err
	}
	s.Daemon, s.Postgres, s.Workers = CPU(d.PID())-daemon, r.PostgresCPU()-postgres, c.CPU()
	return s, Verify(ctx, dsn, n)
}

// CopyIn returns the rate of one COPY of n rows into a new database with indexes and triggers
// in place. An idle dispatcher, whose only slot supports another type, is subscribed to
// notifications and does not read the jobs.
func (r *Rig) CopyIn(ctx context.Context, p Programs, n int) (perSecond float64, err error) {
	const database = "copyin"
	dsn, err := r.FreshOf(ctx, p, database)
	if err != nil {
		return 0, err
	}
	d, err := r.ready(ctx, Launch{Program: p.Daemon, Name: "daemon", DSN: dsn})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	c, err := crew(p.Noop, program.Dispatcher{Socket: d.Socket}, 1, 1, "idle")
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, c.Stop()) }()
	if err := AwaitSubscribed(ctx, dsn); err != nil {
		return 0, err
	}
	if err := r.Settle(ctx, dsn); err != nil {
		return 0, err
	}
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return 0, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	rows := bytes.NewReader(lines(n, 1))
	began := time.Now()
	tag, err := conn.PgConn().CopyFrom(ctx, rows, copyJobs)
	took := time.Since(began)
	if err == nil && tag.RowsAffected() != int64(n) {
		err = fmt.Errorf("%d of %d rows were copied", tag.RowsAffected(), n)
	}
	return float64(n) / took.Seconds(), err
}
