package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/dispatcherd/dispatcherd/tools/lab/internal/figure"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/rig"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/stage"
)

// The producers of Unique, and how many keys a transaction inserts.
const (
	uniqueProducers = 8
	uniquePortion   = 100
)

// uniqueSQL inserts keys $1 to $2: with a statement of the producer that leaves out taken ones, and with the
// function that returns the id of the job that has the key.
var uniqueSQL = [2]string{
	`INSERT INTO dispatcherd.jobs (type, unique_key) SELECT 'unique', 'key:' || i FROM generate_series($1::int, $2::int) i
		ON CONFLICT DO NOTHING RETURNING substr(unique_key, 5)::int, id`,
	`SELECT i, u.id FROM generate_series($1::int, $2::int) i, dispatcherd.insert_unique('{"type": "unique"}', 'key:' || i) u`,
}

// Unique lets producers insert the same n unique keys at the same time, and counts keys that do not have
// exactly one live job, and answers that name another job.
func Unique(ctx context.Context, env *rig.Rig, n int) (figures, details figure.Figures, err error) {
	st, err := stage.Start(ctx, env, stage.Setup{Name: "unique", Daemons: 1, Plain: true, Direct: true})
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, st.Close(ctx)) }()
	begun := time.Now()
	told := make([]map[int]int64, uniqueProducers)
	problems := make([]error, uniqueProducers)
	var all sync.WaitGroup
	for p := range uniqueProducers {
		all.Go(func() { told[p], problems[p] = insertUnique(ctx, st.URL(), uniqueSQL[p%2], n) })
	}
	all.Wait()
	took := time.Since(begun)
	if err := errors.Join(problems...); err != nil {
		return nil, nil, err
	}
	conn, err := pgx.Connect(ctx, st.URL())
	if err != nil {
		return nil, nil, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	rows, err := conn.Query(ctx, `SELECT substr(unique_key, 5)::int, id FROM dispatcherd.jobs_live`)
	if err != nil {
		return nil, nil, err
	}
	live, err := keysOf(rows)
	return figure.Figures{figure.None("unique_dup", float64(duplicates(n, live, told)))},
		figure.Figures{figure.AtLeast("unique_answers_per_s", float64(n*uniqueProducers)/took.Seconds(), 1)}, err
}

// keyed is the row of a job: its key and id.
type keyed struct {
	key int
	id  int64
}

func keysOf(rows pgx.Rows) ([]keyed, error) {
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (k keyed, err error) { return k, row.Scan(&k.key, &k.id) })
}

// insertUnique inserts keys 1 to n in order, and returns the ids that it was told.
func insertUnique(ctx context.Context, url, sql string, n int) (map[int]int64, error) {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return nil, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	told := make(map[int]int64, n)
	for first := 1; first <= n; first += uniquePortion {
		rows, err := conn.Query(ctx, sql, first, min(first+uniquePortion-1, n))
		if err != nil {
			return nil, err
		}
		keys, err := keysOf(rows)
		if err != nil {
			return nil, fmt.Errorf("inserting unique keys: %w", err)
		}
		for _, k := range keys {
			told[k.key] = k.id
		}
	}
	return told, nil
}

// duplicates counts the keys of 1 to n that do not have exactly one live job, and the answers that do not name this job.
func duplicates(n int, live []keyed, told []map[int]int64) (wrong int) {
	ids, count := map[int]int64{}, map[int]int{}
	for _, k := range live {
		ids[k.key] = k.id
		count[k.key]++
	}
	for key := 1; key <= n; key++ {
		if count[key] != 1 {
			wrong++
			continue
		}
		for _, answers := range told {
			if id, answered := answers[key]; answered && id != ids[key] {
				wrong++
			}
		}
	}
	return wrong
}
