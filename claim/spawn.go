package claim

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/dsn"
	"github.com/dispatcherd/dispatcherd/internal/jsontext"
	"github.com/dispatcherd/dispatcherd/internal/limits/permits"
	"github.com/jackc/pgx/v5"
)

// Bounds of children.
const (
	childrenMost = 1000   // of one request
	openMost     = 10_000 // of one job
)

// SpawnError says why children are not inserted.
type SpawnError struct{ Rule, Reason string }

// Error is the reason.
func (e *SpawnError) Error() string { return e.Reason }

// Statements about parent $1. Only lockParentSQL has other parameters, attempt $2.
const (
	// lockParentSQL locks the attempt if it runs, and returns its keys. So the end of the attempt waits for the transaction, whose jobs
	// get the trace context of the parent.
	lockParentSQL = `SELECT coalesce(keys, ''), set_config('dispatcherd.traceparent', coalesce(traceparent, ''), true)
	FROM dispatcherd.jobs_live WHERE id = $1::bigint AND attempt = $2::int AND status = 'running' FOR NO KEY UPDATE`
	// parentStateSQL returns whether the job is being cancelled, whether it is a callback, and how many children are open.
	parentStateSQL = `SELECT EXISTS (SELECT FROM dispatcherd.operations o WHERE o.kind = 'cancel' AND o.target = $1::bigint),
	EXISTS (SELECT FROM dispatcherd.batches b WHERE b.id = $1 AND b.kind <> 'children'),
	(SELECT count(*) FROM (SELECT FROM dispatcherd.jobs_live j WHERE j.parent = $1 LIMIT 10000) c)`
	watchParentSQL = `UPDATE dispatcherd.jobs_live SET watched = true WHERE id = $1::bigint AND watched IS DISTINCT FROM true`
	// openChildrenSQL opens the batch of the children. A row that is cancelled is that of a run before a retry. A cancellation locks it.
	openChildrenSQL = `INSERT INTO dispatcherd.batches AS b (id, kind) VALUES ($1::bigint, 'children')
	ON CONFLICT (id) DO UPDATE SET sealed_at = NULL, ended_at = NULL, open = NULL, cancelled_by = NULL
	WHERE b.sealed_at IS NOT NULL OR b.cancelled_by IS NOT NULL`
)

// childProblemSQL returns the first of jobs $1 that is none, and why; otherwise the text is empty.
const childProblemSQL = `SELECT coalesce(min(place), 0), coalesce((array_agg(p ORDER BY place))[1], '')
	FROM jsonb_array_elements($1::text::jsonb) WITH ORDINALITY AS c (job, place), dispatcherd.job_problem(job, '{unique_key}') p
	WHERE p IS NOT NULL`

// insertChildrenSQL inserts jobs $1, which are $2, with parent $3, or without one if it is 0, and returns their ids. Only unique keys need
// an owner, and dispatcherd.owner raises an error if the setting of the same name is wrong.
const insertChildrenSQL = `
WITH new AS MATERIALIZED (SELECT array_agg(nextval('dispatcherd.job_ids')) AS ids FROM generate_series(1, $2::int))
SELECT n.ids FROM new n, dispatcherd.insert_jobs($1::text::jsonb, n.ids, array_fill('pending'::dispatcherd.status, ARRAY[$2]), NULL,
	nullif($3::bigint, 0), $3 <> 0,
	CASE WHEN jsonb_path_exists($1::text::jsonb, '$[*].unique_key ? (@ != null)') THEN dispatcherd.owner() END)`

// limitSQL reads the limit that applies to key $1, without its rate.
const limitSQL = `
SELECT coalesce(capacity, -1), (scope = 'dispatcher')::int FROM (
	SELECT l.capacity, l.scope, l.key = $1::text AS exact, length(l.key) AS length FROM dispatcherd.limits l
	WHERE l.key = ANY ($1::text || ARRAY (SELECT left($1::text, n) || '*' FROM generate_series(0, length($1::text)) n))
	UNION ALL SELECT 1, 'cluster', false, 0
) l ORDER BY exact DESC, length DESC LIMIT 1`

// InsertChildren inserts children of an attempt that runs, in a transaction that the caller commits. Detached children have no parent:
// they continue after its end. If a rule forbids it, the error is a *SpawnError.
func InsertChildren(ctx context.Context, tx pgx.Tx, r *contract.SpawnRequest) (ids []dispatcherd.JobID, err error) {
	var jobs []json.RawMessage
	if json.Unmarshal(r.Jobs, &jobs) != nil || len(jobs) == 0 || len(jobs) > childrenMost {
		return nil, &SpawnError{"children_are_1_to_1000", "the children must be an array of 1 to 1000 jobs"}
	}
	for i, job := range jobs {
		if err := jsontext.CheckSendable(job); err != nil {
			return nil, &SpawnError{"child_is_a_job", fmt.Sprintf("child %d cannot be sent to a worker: %v", i+1, err)}
		}
	}
	parent := int64(r.Parent)
	var place int
	var problem, keys string
	var asked, callback bool
	var open int
	state := ScanRow(&asked, &callback, &open)
	var batch pgx.Batch
	batch.Queue(childProblemSQL, string(r.Jobs)).QueryRow(ScanRow(&place, &problem))
	batch.Queue(lockParentSQL, parent, int32(r.Attempt)).QueryRow(ScanRow(&keys, nil))
	batch.Queue(parentStateSQL, parent).QueryRow(state)
	err = tx.SendBatch(ctx, &batch).Close()
	switch {
	case problem != "":
		return nil, &SpawnError{"job_has_known_members", fmt.Sprintf("child %d: %s", place, problem)}
	case errors.Is(err, pgx.ErrNoRows), err == nil && asked:
		return nil, &SpawnError{"parent_is_running", fmt.Sprintf("attempt %d of job %d does not run, or is being cancelled", r.Attempt, parent)}
	case err != nil:
		return nil, err
	case r.Detached:
		parent = 0
	case callback:
		return nil, &SpawnError{"callback_has_no_children",
			fmt.Sprintf("job %d is the callback of a batch or flow: its children must be detached", parent)}
	default:
		if err := excluded(ctx, tx, keys, jobs); err != nil {
			return nil, err
		}
		batch = pgx.Batch{}
		batch.Queue(watchParentSQL, parent)
		batch.Queue(openChildrenSQL, parent)
		batch.Queue(parentStateSQL, parent).QueryRow(state)
		switch err := tx.SendBatch(ctx, &batch).Close(); {
		case err != nil:
			return nil, err
		case asked: // the cancellation had locked the batch
			return nil, &SpawnError{"parent_is_running", fmt.Sprintf("job %d is being cancelled", parent)}
		case open+len(jobs) > openMost:
			return nil, &SpawnError{"children_are_at_most_10000", fmt.Sprintf("job %d has more than 10000 open children", parent)}
		}
	}
	return ids, tx.QueryRow(ctx, insertChildrenSQL, string(r.Jobs), len(jobs), parent).Scan(&ids)
}

// excluded returns a *SpawnError if children need a key which their parent holds until it ends. Then the children
// would be cancelled before they could run.
func excluded(ctx context.Context, tx pgx.Tx, keys string, jobs []json.RawMessage) error {
	limits := map[string]permits.Limit{}
	for i, job := range jobs {
		var child struct {
			Keys string `json:"keys"`
		}
		if keys == "" || json.Unmarshal(job, &child) != nil || child.Keys == "" {
			continue
		}
		for _, n := range permits.Shared(keys, child.Keys) {
			l, known := limits[n.Key]
			if !known {
				if err := tx.QueryRow(ctx, limitSQL, n.Key).Scan(&l.Capacity, &l.Scope); err != nil {
					return err
				}
				limits[n.Key] = l
			}
			if l.Excludes(n.Cost) {
				return &SpawnError{"child_fits_beside_its_parent", fmt.Sprintf("child %d needs the key %q, which its parent holds until it ends, "+
					"and then the child is cancelled: leave the key out, because the child runs under the permit of its parent, or spawn it detached",
					i+1, n.Key)}
			}
		}
	}
	return nil
}

// Spawn inserts children of a running job. It tries once: a repetition after an unknown
// outcome could insert the children twice.
func (s *Store) Spawn(ctx context.Context, r contract.SpawnRequest) (result contract.SpawnResult) {
	err := s.spawn.do(ctx, OpSpawn, func(c Session) (int, error) {
		err := pgx.BeginFunc(c, c, func(tx pgx.Tx) (err error) {
			result.IDs, err = InsertChildren(c, tx, &r)
			return err
		})
		if refused, ok := errors.AsType[*SpawnError](err); ok {
			result.Rule, result.Reason = refused.Rule, cmp.Or(contract.Rule(refused.Rule, ""), refused.Reason)
			return 0, nil
		}
		return len(result.IDs), err
	})
	switch e := dsn.ErrorOf(err); {
	case err == nil:
		return result
	case verdictOf(err) == contract.Unknown:
		return contract.SpawnResult{Rule: dispatcherd.RuleOutcomeIsKnown, Reason: "the answer of Postgres was lost: the children may exist"}
	case e.ConstraintName == "" && strings.HasPrefix(e.Code, "22"): // a value is invalid
		return contract.SpawnResult{Rule: "child_is_a_job", Reason: e.Message}
	case e.ConstraintName == "":
		return contract.SpawnResult{Rule: dispatcherd.RuleDatabaseAnswers, Reason: "Postgres did not insert the children: try again later"}
	default:
		return contract.SpawnResult{Rule: e.ConstraintName, Reason: cmp.Or(contract.Rule(e.ConstraintName, e.Detail), e.Message)}
	}
}
