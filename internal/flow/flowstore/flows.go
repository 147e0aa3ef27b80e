package flowstore

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/claim"
	"github.com/dispatcherd/dispatcherd/internal/dsn"
	"github.com/dispatcherd/dispatcherd/internal/flow"
)

// Store does steps of batches and flows in Postgres.
type Store struct {
	Do     claim.Connection // of steps; a statement may take 1 s, and wait 50 ms for a lock
	Search claim.Connection // of Due: many dead messages, which an old snapshot keeps, make it slow
	Sweep  claim.Connection // of expiry
}

// lockNotAvailable is the SQLSTATE of a statement that has waited for the lock of another transaction for 50 ms.
const lockNotAvailable = "55P03"

// Result is what a step has left.
type Result struct {
	Left       bool // there is more to do
	Busy       bool // after another transaction
	OthersTold bool // other targets may have messages
	Wrong      int  // counters that a repair has found
	Retried    int  // jobs that run again
	Rounds     int
}

// Step does a step of a target: rounds of reading, deciding and writing in one transaction. A chain of nodes that are cancelled needs one
// round for each of them.
func (s Store) Step(ctx context.Context, target dispatcherd.JobID, l flow.Limits) (r Result, err error) {
	err = s.Do(ctx, func(conn claim.Session) (int, error) {
		t := step{conn: conn.Conn, target: target, limits: l}
		for again := true; again; again = t.refused(err) {
			err = t.do(conn)
		}
		if r = t.Result; claim.AnswerCode(err) == lockNotAvailable {
			r.Left, r.Busy, err = true, true, nil
		}
		return 1, err
	})
	return r, err
}

// step is a step of a target.
type step struct {
	Result

	conn   *pgx.Conn
	target dispatcherd.JobID
	limits flow.Limits
	change flow.Change // of the last round
	refuse flow.Stop   // of a row that Postgres cannot release
}

func (s *step) do(ctx context.Context) error {
	s.Result = Result{}
	var locked, noInserts bool
	var batch pgx.Batch
	batch.Queue("BEGIN")
	batch.Queue(lockSQL, s.target).QueryRow(claim.ScanRow(&locked, &s.Busy, &noInserts))
	defer func() {
		if s.conn.PgConn().TxStatus() != 'I' {
			_, _ = s.conn.Exec(ctx, "ROLLBACK")
		}
	}()
	for begun, last := time.Now(), false; ; {
		var view struct {
			flow.View

			Unlinked []dispatcherd.JobID
		}
		if !last {
			batch.Queue(viewSQL, s.target, s.limits.Items).QueryRow(claim.ScanRow(&view))
		}
		err := s.conn.SendBatch(ctx, &batch).Close()
		if s.Left = s.Left || s.Busy; err != nil || !locked || last {
			return err
		}
		s.Rounds++
		if err := s.readMore(ctx, &view.View, view.Unlinked); err != nil {
			return err
		}
		view.NoInserts = noInserts || view.Batch.Kind == "children"
		s.change = flow.Step(&view.View, s.limits)
		refused := slices.Contains(s.change.Release, s.refuse.ID)
		if refused { // Items is 1
			s.change.Release, s.change.Stop = nil, append(s.change.Stop, s.refuse)
		}
		batch = pgx.Batch{}
		s.queue(&batch, &s.change)
		if last = !s.Left || s.Busy || refused || time.Since(begun) > s.limits.Time; last {
			batch.Queue("COMMIT")
		}
	}
}

// readMore reads what few steps need.
func (s *step) readMore(ctx context.Context, v *flow.View, unlinked []dispatcherd.JobID) error {
	if len(unlinked) > 0 {
		var found []byte
		if err := s.conn.QueryRow(ctx, lockOutsideSQL, unlinked).Scan(&found); err != nil {
			return err
		}
		var ended []flow.Outside
		if err := s.conn.QueryRow(ctx, outsideSQL, unlinked, found).Scan(&ended); err != nil {
			return err
		}
		v.Outside = append(v.Outside, ended...)
	}
	if b := &v.Batch; b.Walk != "" {
		var walk flow.View
		err := s.conn.QueryRow(ctx, walkSQL, b.ID, s.limits.Items, b.Walked, b.Walk == flow.Retry).Scan(&walk)
		v.Walk, v.MoreWalk = walk.Walk, walk.MoreWalk
		return err
	}
	if !slices.ContainsFunc(v.Messages, func(m flow.Message) bool { return m.Walk == flow.Retry }) {
		return nil
	}
	return s.conn.QueryRow(ctx, badSQL, v.Batch.ID).Scan(&v.CallbackBad)
}

// refused reports whether Postgres has refused a row that was released, for example because its payload is too large with the results that
// it gets. Then the step is to be repeated: with one item, and after that it ends this row.
func (s *step) refused(err error) bool {
	pg := dsn.ErrorOf(err)
	n := len(s.change.Release)
	if pg.Code == "" || n == 0 || s.refuse.ID != 0 || !slices.Contains([]string{"22", "23", "54", "XX"}, pg.Code[:2]) {
		return false
	}
	if n == 1 {
		s.refuse = flow.Stop{ID: s.change.Release[0], Status: dispatcherd.Failed, Reason: "the job cannot be released: " + pg.Message}
	}
	s.limits.Items = 1
	return true
}

// Due is a target that has messages.
type Due struct {
	ID    dispatcherd.JobID
	Owner string // of its batch or flow; "" = it is a job with children
}

// dueSQL returns up to 1,000 targets above $1 that have messages and are not set aside.
const dueSQL = `
WITH RECURSIVE due (target) AS (
	(SELECT target FROM dispatcherd.ends WHERE target > $1 ORDER BY target LIMIT 1)
	UNION ALL
	SELECT (SELECT e.target FROM dispatcherd.ends e WHERE e.target > d.target ORDER BY e.target LIMIT 1) FROM due d WHERE d.target IS NOT NULL
)
SELECT d.target, coalesce(b.owner, '') FROM due d
LEFT JOIN LATERAL (SELECT * FROM dispatcherd.batches o WHERE o.id BETWEEN d.target AND d.target) b ON true
WHERE d.target IS NOT NULL AND b.aside_at IS NULL LIMIT 1000`

// Due returns the first targets above an id that have messages.
func (s Store) Due(ctx context.Context, after dispatcherd.JobID) (targets []Due, err error) {
	return claim.Collect(ctx, s.Search, pgx.RowToStructByPos[Due], dueSQL, after)
}

// asideSQL sets target $1 aside because of $2. A job on which nodes depend gets a row, as if it had children.
const asideSQL = `
INSERT INTO dispatcherd.batches (id, kind, aside, aside_at) VALUES ($1, 'children', $2, clock_timestamp())
ON CONFLICT (id) DO UPDATE SET aside = excluded.aside, aside_at = excluded.aside_at`

// SetAside says that steps of a target fail. Its messages stay until a repair.
func (s Store) SetAside(ctx context.Context, target dispatcherd.JobID, why error) error {
	text := strings.ToValidUTF8(fmt.Sprintf("%.500v", why), "")
	_, err := s.Do.Exec(ctx, asideSQL, target, text)
	return err
}

// repairSQL asks for a repair of the first 100 open targets above $1, and returns the last of them; 0 = there is none.
const repairSQL = `
WITH first AS (
	SELECT id FROM dispatcherd.batches WHERE ended_at IS NULL AND sealed_at IS NOT NULL AND id > $1 ORDER BY id LIMIT 100
), asked AS (
	INSERT INTO dispatcherd.ends (target, walk) SELECT id, 'repair' FROM first
), again AS (
	UPDATE dispatcherd.batches SET aside = NULL, aside_at = NULL WHERE aside_at IS NOT NULL AND id IN (SELECT id FROM first)
)
SELECT coalesce((SELECT max(id) FROM first), 0)`

// Repair asks for a repair of the first open targets with an id above previous, and returns the last of them; 0 = there is none.
func (s Store) Repair(ctx context.Context, previous dispatcherd.JobID) (next dispatcherd.JobID, err error) {
	err = s.Sweep.Scan(ctx, repairSQL, []any{previous}, &next)
	return next, err
}

// expireSQL deletes batches and flows that ended more than $1 ago and have no message, and expired unique keys, in portions: up to 100 of
// them, and flows until they have 10,000 nodes. It returns whether there is more to delete.
const expireSQL = `
WITH oldest AS MATERIALIZED (
	SELECT id, ended_at, CASE kind WHEN 'flow' THEN done + failed + cancelled ELSE 0 END AS nodes FROM dispatcherd.batches b
	WHERE ended_at < now() - $1::interval AND open <= 0 AND aside_at IS NULL
		AND NOT EXISTS (SELECT FROM dispatcherd.ends e WHERE e.target = b.id) ORDER BY ended_at LIMIT 100 FOR UPDATE SKIP LOCKED
), old AS MATERIALIZED (
	SELECT id FROM (SELECT id, sum(nodes) OVER (ORDER BY ended_at, id) - nodes AS earlier FROM oldest) o WHERE earlier < 10000
), node AS (
	DELETE FROM dispatcherd.nodes WHERE flow = ANY (ARRAY (SELECT id FROM old)) RETURNING flow, depends_on
), edge AS (
	DELETE FROM dispatcherd.edges g USING (SELECT DISTINCT n.flow, a.id FROM node n CROSS JOIN unnest(n.depends_on) AS a (id)) e
	WHERE g.before BETWEEN e.id AND e.id AND g.flow = e.flow
), bad AS (
	DELETE FROM dispatcherd.bad_members WHERE batch = ANY (ARRAY (SELECT id FROM old))
), batch AS (
	DELETE FROM dispatcherd.batches WHERE id = ANY (ARRAY (SELECT id FROM old))
), unique_key AS (
	DELETE FROM dispatcherd.uniques WHERE key = ANY (ARRAY (
		SELECT key FROM dispatcherd.uniques WHERE until < now() ORDER BY until LIMIT 10000 FOR UPDATE SKIP LOCKED)) RETURNING key
)
SELECT (SELECT count(*) FROM oldest) = 100 OR (SELECT count(*) FROM oldest) > (SELECT count(*) FROM old)
	OR (SELECT count(*) FROM unique_key) = 10000`

// Expire deletes a portion of the batches and flows that have ended more than keep ago, and of the unique keys whose time
// is over. more says that there are more of them.
func (s Store) Expire(ctx context.Context, keep time.Duration) (more bool, err error) {
	err = s.Sweep.Scan(ctx, expireSQL, []any{keep}, &more)
	return more, err
}
