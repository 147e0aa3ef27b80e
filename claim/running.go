package claim

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/limits/permits"
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

// keysSQL reads the keys of a job.
const keysSQL = `SELECT coalesce((SELECT keys FROM dispatcherd.jobs_live WHERE id = $1::bigint), '')`

// limitSQL reads the limit that applies to key $1, without its rate.
const limitSQL = `
SELECT coalesce(capacity, -1), (scope = 'dispatcher')::int FROM (
	SELECT l.capacity, l.scope, l.key = $1::text AS exact, length(l.key) AS length FROM dispatcherd.limits l
	WHERE l.key = ANY ($1::text || ARRAY (SELECT left($1::text, n) || '*' FROM generate_series(0, length($1::text)) n))
	UNION ALL SELECT 1, 'cluster', false, 0
) l ORDER BY exact DESC, length DESC LIMIT 1`

// excluded returns what is wrong with children that need a key which their parent holds until it ends; "" = nothing. Then the children
// would be cancelled before they could run.
func excluded(ctx context.Context, conn *pgx.Conn, r *contract.SpawnRequest) (reason string, err error) {
	var jobs []struct {
		Keys string `json:"keys"`
	}
	if !r.Detached {
		_ = json.Unmarshal(r.Jobs, &jobs) // the function refuses invalid values
	}
	parent, limits := "", map[string]permits.Limit{}
	for i := range jobs {
		if jobs[i].Keys == "" {
			continue
		}
		if parent == "" {
			if err := conn.QueryRow(ctx, keysSQL, int64(r.Parent)).Scan(&parent); err != nil || parent == "" {
				return "", err
			}
		}
		for _, n := range permits.Shared(parent, jobs[i].Keys) {
			l, known := limits[n.Key]
			if !known {
				if err := conn.QueryRow(ctx, limitSQL, n.Key).Scan(&l.Capacity, &l.Scope); err != nil {
					return "", err
				}
				limits[n.Key] = l
			}
			if l.Excludes(n.Cost) {
				return fmt.Sprintf("child %d needs the key %q, which its parent holds until it ends, and then the child is cancelled: "+
					"leave the key out, because the child runs under the permit of its parent, or spawn it detached", i+1, n.Key), nil
			}
		}
	}
	return "", nil
}

// Spawn inserts children of a running job. It tries once: a repetition after an unknown
// outcome could insert the children twice.
func (s *Store) Spawn(ctx context.Context, r contract.SpawnRequest) contract.SpawnResult {
	var ids []int64
	var reason string
	err := s.spawn.do(ctx, OpSpawn, func(ctx context.Context, conn *pgx.Conn) (n int, err error) {
		if reason, err = excluded(ctx, conn, &r); err != nil || reason != "" {
			return 0, err
		}
		err = conn.QueryRow(ctx, spawnSQL, int64(r.Parent), int32(r.Attempt), string(r.Jobs), r.Detached).Scan(&ids)
		return len(ids), err
	})
	if reason != "" {
		return contract.SpawnResult{Rule: "child_fits_beside_its_parent", Reason: reason}
	}
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
