package hostile

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/dispatcherd/dispatcherd/tools/lab/internal/rig"
)

// producerSQL creates the role of a hostile producer, which has the rights of a producer and no others.
const producerSQL = `DO $$ BEGIN
	CREATE ROLE hostile LOGIN IN ROLE dispatcherd_producer;
EXCEPTION WHEN duplicate_object THEN
	NULL;
END $$`

// producer connects as the hostile producer.
func (s *Site) producer(ctx context.Context) (*pgx.Conn, error) {
	if _, err := s.Exec(ctx, producerSQL); err != nil {
		return nil, err
	}
	config, err := pgx.ParseConfig(s.dsn)
	if err != nil {
		return nil, err
	}
	config.User = "hostile"
	return pgx.ConnectConfig(ctx, config)
}

// Times of the attacks of a producer.
const (
	openTime  = 100 * time.Millisecond // how long a transaction stays open
	lockTime  = "20ms"                 // how long its statements wait for locks of others
	sealsOnce = 20                     // seals in one transaction
	forged    = 50                     // false notifications in one transaction
)

// ProducerAttacks are what a role with the rights of a producer can try against others. The keys are unique keys that the others use, and
// typ is a type of their jobs.
func ProducerAttacks(keys []string, typ string) []Attack {
	return []Attack{
		{
			Name: "seals", // of batches of others, both open ones and sealed ones, in transactions that stay open
			Begin: func(ctx context.Context, s *Site) (func() error, error) {
				return s.asProducer(ctx, func(ctx context.Context, conn *pgx.Conn) error {
					var batches []int64
					if err := s.QueryRow(ctx, `SELECT array_agg(id)
						FROM (SELECT id FROM dispatcherd.batches ORDER BY id DESC LIMIT $1) b`, sealsOnce).Scan(&batches); err != nil {
						return err
					}
					return hold(ctx, conn, `SELECT dispatcherd.seal_batch(%d)`, batches)
				})
			},
		},
		{
			Name: "uniques", // unique keys of others, in transactions that stay open
			Begin: func(ctx context.Context, s *Site) (func() error, error) {
				return s.asProducer(ctx, func(ctx context.Context, conn *pgx.Conn) error {
					return hold(ctx, conn, `SELECT dispatcherd.insert_unique('{"type": "`+s.Type+`"}', '%s')`, keys)
				})
			},
		},
		{
			Name: "locks", // of tables and rows of others
			Begin: func(ctx context.Context, s *Site) (func() error, error) {
				return s.asProducer(ctx, func(ctx context.Context, conn *pgx.Conn) error {
					return errors.Join(
						hold(ctx, conn, `LOCK TABLE dispatcherd.%s IN ACCESS EXCLUSIVE MODE`, lockable),
						hold(ctx, conn, `SELECT id FROM dispatcherd.%s FOR UPDATE`, lockable),
					)
				})
			},
		},
		{
			Name: "notifications", // false ones, about rows and of each topic
			Begin: func(ctx context.Context, s *Site) (func() error, error) {
				return s.asProducer(ctx, func(ctx context.Context, conn *pgx.Conn) error {
					if err := rig.Pause(ctx, 20*time.Millisecond); err != nil {
						return err
					}
					_, err := conn.Exec(ctx, `SELECT pg_notify('dispatcherd', 'jobs ' || (random() * 1e6)::bigint || ' 10 1 ' || $1)
						FROM generate_series(1, $2) UNION ALL SELECT pg_notify('dispatcherd', topic)
						FROM unnest('{jobs,admitted,operations,edits,keys,ends}'::text[]) topic`, typ, forged)
					return err
				})
			},
		},
		{
			Name: "members", // a batch with very many members
			Begin: func(ctx context.Context, s *Site) (func() error, error) {
				conn, err := s.producer(ctx)
				if err != nil {
					return nil, err
				}
				defer conn.Close(context.WithoutCancel(ctx))
				_, err = conn.Exec(ctx, fmt.Sprintf(`DO $$ DECLARE batch bigint := dispatcherd.open_batch(); BEGIN
					INSERT INTO dispatcherd.jobs (type, parent) SELECT '%s', batch FROM generate_series(1, %d);
					PERFORM dispatcherd.seal_batch(batch);
				END $$`, s.Type, s.Scaled(1_000_000)))
				return nil, err
			},
		},
	}
}

// lockable are the tables that dispatchers and producers use.
var lockable = []string{
	"jobs", "jobs_live", "jobs_waiting", "batches", "nodes", "edges", "ends", "uniques", "operations", "schedules", "limits", "dispatchers",
}

// asProducer repeats f as the hostile producer until end is called. end returns the first error of f.
func (s *Site) asProducer(ctx context.Context, f func(ctx context.Context, conn *pgx.Conn) error) (end func() error, err error) {
	conn, err := s.producer(ctx)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	failed := make(chan error, 1)
	go func() {
		defer conn.Close(context.WithoutCancel(ctx))
		for {
			if err := f(ctx, conn); err != nil || rig.Pause(ctx, time.Millisecond) != nil {
				failed <- err
				return
			}
		}
	}()
	return func() error {
		cancel()
		if err := <-failed; !errors.Is(err, context.Canceled) {
			return err
		}
		return nil
	}, nil
}

// hold executes the statement with each value in one transaction, keeps it open for a while, and commits it. Statements that Postgres
// refuses have no effect.
func hold[T any](ctx context.Context, conn *pgx.Conn, statement string, values []T) error {
	if _, err := conn.Exec(ctx, `BEGIN; SET LOCAL lock_timeout = '`+lockTime+`'`); err != nil {
		return err
	}
	for _, v := range values {
		if _, err := conn.Exec(ctx, `SAVEPOINT before`); err != nil {
			return err
		}
		_, err := conn.Exec(ctx, fmt.Sprintf(statement, v))
		if _, refused := errors.AsType[*pgconn.PgError](err); refused {
			_, err = conn.Exec(ctx, `ROLLBACK TO before`)
		}
		if err != nil {
			return err
		}
	}
	if err := rig.Pause(ctx, openTime); err != nil {
		return err
	}
	_, err := conn.Exec(ctx, `SET LOCAL lock_timeout = 0; COMMIT`) // a commit with notifications waits for a lock, too
	return err
}
