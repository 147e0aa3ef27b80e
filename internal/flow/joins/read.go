package joins

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
)

// Columns have the names of the members of contract.Batch, Node and Dependency: each statement returns one JSON document.
const (
	state = `CASE WHEN b.cancelled_by IS NOT NULL THEN 'cancelled' WHEN b.ended_at IS NOT NULL THEN 'ended'
		WHEN b.sealed_at IS NULL THEN 'open' ELSE 'sealed' END`
	batchColumns = `b.id, b.kind, b.name, ` + state + ` AS state, b.callback, CASE WHEN b.callback THEN b.run_when END AS run_when,
	b.opened_at, b.sealed_at, b.ended_at, b.open, coalesce(b.done, 0) AS done, coalesce(b.failed, 0) AS failed,
	coalesce(b.cancelled, 0) AS cancelled, b.cancelled_by, b.aside, b.owner`

	listSQL = `SELECT coalesce(json_agg(l ORDER BY l.id DESC), '[]') FROM (SELECT ` + batchColumns + ` FROM dispatcherd.batches b
	WHERE ($1::text = '' OR b.kind = $1) AND ($2::text = '' OR ` + state + ` = $2) AND ($3::bigint = 0 OR b.id < $3)%s
	ORDER BY b.id DESC LIMIT $4) l`

	notEnded = ` AND b.ended_at IS NULL` // with it Postgres uses the index batches_open

	getSQL = `SELECT row_to_json(l) FROM (SELECT ` + batchColumns + `, j.type AS callback_type, j.status AS callback_status
	FROM dispatcherd.batches b LEFT JOIN dispatcherd.jobs j ON j.id = b.id AND b.callback WHERE b.id = $1) l`

	// LIMIT 1 finds each row by its id, whatever the statistics are.
	nodesSQL = `SELECT json_build_object('read_at', clock_timestamp(), 'nodes', coalesce(json_agg(l ORDER BY l.place), '[]')) FROM (
	SELECT n.id, n.place, n.name, j.type, j.status, n.run_when, n.takes_results, coalesce(n.depends_on[1:100], '{}') AS after,
		coalesce(cardinality(n.depends_on), 0) AS dependencies, coalesce(n.open, 0) AS open, n.ready_at, j.started_at, j.finished_at, j.error
	FROM dispatcherd.nodes n LEFT JOIN LATERAL (
		SELECT j.type, j.status, j.started_at, j.finished_at, left(j.errors -> -1 ->> 'error', 200) AS error
		FROM dispatcherd.jobs j WHERE j.id = n.id LIMIT 1
	) j ON true WHERE n.flow = $1) l`

	// The missing id is neither that of a job nor of a batch. A batch and its callback become visible together.
	typesSQL = `SELECT json_build_object('Types', coalesce(json_agg(DISTINCT j.type) FILTER (WHERE j.type IS NOT NULL), '[]'),
	'Missing', coalesce(min(i.id) FILTER (WHERE j.type IS NULL AND NOT EXISTS (SELECT FROM dispatcherd.batches b WHERE b.id = i.id)), 0))
	FROM unnest($1::bigint[]) i (id) LEFT JOIN LATERAL (SELECT j.type FROM dispatcherd.jobs j WHERE j.id = i.id LIMIT 1) j ON true`

	waitsSQL = `SELECT row_to_json(l) FROM (
	SELECT false AS batch, n.flow, n.open AS left, (SELECT aside FROM dispatcherd.batches WHERE id = n.flow) AS aside,
		(SELECT coalesce(json_agg(f ORDER BY f.id), '[]') FROM (
		SELECT j.id, m.name, j.type, j.status FROM unnest(n.depends_on) d (id) JOIN dispatcherd.jobs j ON j.id BETWEEN d.id AND d.id
		LEFT JOIN dispatcherd.nodes m ON m.id = d.id AND m.flow = n.flow WHERE j.status IN ('waiting', 'pending', 'running')
		ORDER BY j.id LIMIT 10) f) AS first
	FROM dispatcherd.nodes n WHERE n.id = $1
	UNION ALL
	SELECT true, NULL, b.open, b.aside, (SELECT coalesce(json_agg(f ORDER BY f.id), '[]') FROM (
		SELECT j.id, m.name, j.type, j.status FROM dispatcherd.jobs j LEFT JOIN dispatcherd.nodes m ON m.id = j.id
		WHERE j.parent = b.id AND j.status IN ('waiting', 'pending', 'running') LIMIT 10) f)
	FROM dispatcherd.batches b WHERE b.id = $1 AND b.ended_at IS NULL ORDER BY batch DESC LIMIT 1) l`
)

// read decodes the JSON document of a statement. A program may use database/sql, which does not decode documents as pgx does.
func (j Joins) read(ctx context.Context, into any, sql string, args ...any) error {
	var text []byte
	if err := j.DB.QueryRow(ctx, sql, args...).Scan(&text); err != nil {
		return refused(err)
	}
	return json.Unmarshal(text, into)
}

// List returns a page of batches and flows, the newest first.
func (j Joins) List(ctx context.Context, f contract.BatchFilter) (list []contract.Batch, err error) {
	only := ""
	if f.State == "open" || f.State == "sealed" {
		only = notEnded
	}
	err = j.read(ctx, &list, fmt.Sprintf(listSQL, only), f.Kind, f.State, int64(f.Before), f.Limit)
	return list, err
}

// Get returns a batch or flow.
func (j Joins) Get(ctx context.Context, id dispatcherd.JobID) (b contract.Batch, err error) {
	err = j.read(ctx, &b, getSQL, int64(id))
	if errors.Is(err, pgx.ErrNoRows) {
		err = refuse(ErrNotFound, "", "no batch or flow has the id %d", id)
	}
	return b, err
}

// Flow returns a flow with its nodes.
func (j Joins) Flow(ctx context.Context, id dispatcherd.JobID) (f contract.Flow, err error) {
	b, err := j.Get(ctx, id)
	switch {
	case err != nil:
		return f, err
	case b.Kind != contract.FlowKind:
		return f, refuse(ErrNotFound, "", "%d is the id of a %s, not of a flow", id, b.Kind)
	}
	err = j.read(ctx, &f, nodesSQL, int64(id))
	f.Batch = b
	return f, err
}

// TypesOf returns the types of the nodes of a flow.
func TypesOf(f *contract.Flow) []string {
	types := make([]string, len(f.Nodes))
	for i := range f.Nodes {
		types[i] = f.Nodes[i].Type
	}
	return types
}

// MemberTypes returns the types of the members of a batch or flow, or all: members of a batch may have any type.
func (j Joins) MemberTypes(ctx context.Context, b *contract.Batch) (types []string, all bool, err error) {
	if b.Kind != contract.FlowKind {
		return nil, true, nil
	}
	f, err := j.Flow(ctx, b.ID)
	return TypesOf(&f), false, err
}

// CancelledWith returns the types of the jobs that are cancelled with a job, or all: those of a batch or flow whose callback it is.
// After the end of the batch there are none.
func (j Joins) CancelledWith(ctx context.Context, job dispatcherd.JobID) (types []string, all bool, err error) {
	b, err := j.Get(ctx, job)
	if errors.Is(err, ErrNotFound) || err == nil && (!b.Callback || b.EndedAt != nil) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	return j.MemberTypes(ctx, &b)
}

// Types returns the types of jobs, in no order. A batch without a callback has none. Types returns an ErrInvalid if it does not see one of
// the ids: a statement that follows might see it, and a caller whose rights are checked by the types would then use any type.
func (j Joins) Types(ctx context.Context, ids []int64) ([]string, error) {
	var found struct {
		Types   []string
		Missing int64
	}
	err := j.read(ctx, &found, typesSQL, ids)
	if err == nil && found.Missing != 0 {
		err = refuse(ErrInvalid, "", "no job or batch has the id %d", found.Missing)
	}
	return found.Types, err
}

// Waits returns what a waiting job waits for, or nil.
func (j Joins) Waits(ctx context.Context, id dispatcherd.JobID) (*contract.Dependencies, error) {
	var d contract.Dependencies
	err := j.read(ctx, &d, waitsSQL, int64(id))
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	return &d, err
}
