package claim

import (
	"cmp"
	"context"
	"strings"
	"time"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/jackc/pgx/v5"
)

// Progress is the progress that a worker reports for a running attempt.
type Progress struct {
	ID      dispatcherd.JobID
	Attempt dispatcherd.Attempt
	JSON    []byte
}

// progressSQL writes progress: $1 ids, $2 attempts, $3 values, $4 this dispatcher. It
// locks rows in the order of id + 0. File statements.go explains this order.
const progressSQL = `
WITH item AS MATERIALIZED (
	SELECT j.ctid AS at, i.value FROM unnest($1::bigint[], $2::int[], $3::text[]) AS i (id, attempt, value)
	JOIN dispatcherd.jobs_live j ON ` + isItem + `
	WHERE j.dispatcher = $4::int AND j.status = 'running'
	ORDER BY j.id + 0 FOR UPDATE OF j SKIP LOCKED
)
UPDATE dispatcherd.jobs_live j SET progress = i.value::json FROM item i
WHERE j.ctid = i.at AND j.status = 'running'`

// Progress records the latest progress of running attempts, fenced like a finish. It
// does not report stale attempts. Every call writes a version of each row. So the
// caller keeps only the newest report of each job and calls Progress about once per
// second at most.
func (s *Store) Progress(ctx context.Context, items []Progress) error {
	return s.lease.do(ctx, OpProgress, func(ctx context.Context, conn *pgx.Conn) (n int, err error) {
		err = apart(s,
			OpProgress,
			items,
			time.Now().Add(releaseTime),
			func(p Progress) dispatcherd.JobID { return p.ID },
			func(part []Progress) error {
				ids, attempts, values := make([]int64, len(part)), make([]int32, len(part)), make([]string, len(part))
				for i, p := range part {
					ids[i], attempts[i], values[i] = int64(p.ID), int32(p.Attempt), string(p.JSON)
				}
				tag, err := conn.Exec(ctx, progressSQL, ids, attempts, values, s.me.Load())
				n += int(tag.RowsAffected())
				return err
			},
		)
		return n, err
	})
}

// spawnSQL inserts children of an attempt: $1 parent, $2 attempt, $3 jobs, $4 detached. The
// function locks the row of the parent, so the end of the attempt waits for this statement.
const spawnSQL = `SELECT dispatcherd.insert_children($1::bigint, $2::int, $3::text::jsonb, $4::boolean)`

// Spawn inserts children of a running job. It tries once: a repetition after an unknown
// outcome could insert the children twice.
func (s *Store) Spawn(ctx context.Context, r contract.SpawnRequest) contract.SpawnResult {
	var ids []int64
	err := s.spawn.do(ctx, OpSpawn, func(ctx context.Context, conn *pgx.Conn) (int, error) {
		err := conn.QueryRow(ctx, spawnSQL, int64(r.Parent), int32(r.Attempt), string(r.Jobs), r.Detached).Scan(&ids)
		return len(ids), err
	})
	switch e := serverError(err); verdictOf(err) {
	case contract.OK:
		result := contract.SpawnResult{IDs: make([]dispatcherd.JobID, len(ids))}
		for i, id := range ids {
			result.IDs[i] = dispatcherd.JobID(id)
		}
		return result
	case contract.Unknown:
		return contract.SpawnResult{Rule: dispatcherd.RuleOutcomeIsKnown, Reason: "the answer of Postgres was lost: the children may exist"}
	default:
		switch {
		case e != nil && e.ConstraintName == "" && strings.HasPrefix(e.Code, "22"): // a value is invalid
			return contract.SpawnResult{Rule: "child_is_a_job", Reason: e.Message}
		case e == nil || e.ConstraintName == "":
			return contract.SpawnResult{Rule: dispatcherd.RuleDatabaseAnswers, Reason: "Postgres did not insert the children: try again later"}
		}
		return contract.SpawnResult{Rule: e.ConstraintName, Reason: cmp.Or(contract.Rule(e.ConstraintName, e.Detail), e.Message)}
	}
}
