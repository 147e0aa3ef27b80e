package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/dispatcherd/dispatcherd/tools/lab/internal/judge"
)

// job is a row. Times are those of the database.
type job struct {
	id       int64
	group    string // jobs of a group start in the order of their due times and ids
	keys     string
	needs    []judge.Need
	inserted time.Time
	due      time.Time // of the first attempt
	fence    int64     // of the last attempt
	attempts int       // that were claimed
	runs     []span    // attempts, in their order
	ended    bool
}

// span is the time of an attempt: from its claim until the row said that it had ended. Without an end it runs.
type span struct{ from, to time.Time }

// historySQL reads all jobs with keys.
const historySQL = `
SELECT id, type, priority, keys, created_at, coalesce(first_run_at, run_at), coalesce(abs(fence), 0), attempt, started_at,
	finished_at, status NOT IN ('pending', 'running'), errors
FROM dispatcherd.jobs WHERE keys IS NOT NULL`

// failure is an element of the errors of a row.
type failure struct {
	Attempt   int       `json:"attempt"`
	StartedAt time.Time `json:"started_at"`
	At        time.Time `json:"at"`
}

// read returns all jobs with keys, in the order of their ids.
func read(ctx context.Context, url string) (jobs []job, err error) {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return nil, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	rows, err := conn.Query(ctx, historySQL)
	if err != nil {
		return nil, err
	}
	known := map[string][]judge.Need{}
	jobs, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (job, error) { return readJob(row, known) })
	slices.SortFunc(jobs, func(a, b job) int { return int(a.id - b.id) })
	return jobs, err
}

// readJob reads a row. known has the needs of keys that were read before.
func readJob(row pgx.CollectableRow, known map[string][]judge.Need) (j job, err error) {
	var (
		kind              string
		priority          int
		started, finished *time.Time
		errs              []byte
	)
	if err := row.Scan(&j.id, &kind, &priority, &j.keys, &j.inserted, &j.due, &j.fence, &j.attempts, &started, &finished,
		&j.ended, &errs); err != nil {
		return j, err
	}
	if known[j.keys] == nil {
		known[j.keys] = judge.Needs(j.keys)
	}
	j.needs = known[j.keys]
	if j.group = j.keys; len(j.needs) == 1 {
		j.group = j.needs[0].Key
	}
	j.group = fmt.Sprint(j.group, " ", kind, " ", priority)
	return j, j.addRuns(started, finished, errs)
}

// addRuns adds the attempts: earlier ones are in the errors of the row.
func (j *job) addRuns(started, finished *time.Time, errs []byte) error {
	var list []failure
	if errs != nil {
		if err := json.Unmarshal(errs, &list); err != nil {
			return fmt.Errorf("errors of job %d: %w", j.id, err)
		}
	}
	for _, f := range list {
		if f.Attempt < j.attempts || started == nil {
			j.runs = append(j.runs, span{f.StartedAt, f.At})
		}
	}
	if started != nil {
		last := span{from: *started}
		if finished != nil {
			last.to = *finished
		}
		j.runs = append(j.runs, last)
	}
	return nil
}

// unstarted counts the attempts that rows do not show: a dispatcher claimed the job, and gave it back before a worker started it.
func unstarted(jobs []job) (n int) {
	for i := range jobs {
		n += jobs[i].attempts - len(jobs[i].runs)
	}
	return n
}
