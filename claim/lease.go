package claim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/jackc/pgx/v5"
)

var leaseStatements = statements{
	{"beat", "renews the lease and reads what this dispatcher must know", beatSQL},
	{"forget", "removes the records of claims whose jobs have ended", forgetSQL},
}

// isNamed says that a request to cancel, c, is about job j. See isItem.
const isNamed = `j.id BETWEEN c.job_id AND c.job_id AND c.job_id > 0`

// beatSQL does a second's housekeeping in one statement: $1 this dispatcher, $2
// its capacity, $3 its incarnation. It renews the lease (an expired one too, as long as nobody has
// noticed, but not one that was handed over: that would publish slots which are
// gone, and a beat may arrive after the hand-over), declares silent dispatchers
// lost, and reads what this one needs to know. Released rows need a later
// snapshot, see releaseSQL.
const beatSQL = `
WITH beat AS (
	UPDATE dispatcherd.dispatchers SET beat_at = now(), capacity = $2::text::jsonb
	WHERE id = $1::int AND incarnation = $3::uuid AND lost_at IS NULL AND NOT leaving RETURNING id
), silent AS MATERIALIZED (
	SELECT id FROM dispatcherd.dispatchers
	WHERE id <> $1 AND lost_at IS NULL AND beat_at + lease < now()
	ORDER BY id FOR UPDATE SKIP LOCKED
), lost AS (
	UPDATE dispatcherd.dispatchers d SET lost_at = now(), armed = false FROM silent s WHERE d.id = s.id RETURNING d.id
)
SELECT EXISTS (SELECT FROM beat), now(),
	(SELECT array_agg(id) FROM (SELECT id FROM lost UNION SELECT id FROM dispatcherd.dispatchers WHERE lost_at IS NOT NULL) l),
	(SELECT array_agg(j.id::bigint) FROM dispatcherd.cancels c JOIN dispatcherd.jobs_live j ON ` + isNamed + `
		WHERE j.status = 'running' AND j.dispatcher = $1),
	EXISTS (SELECT FROM dispatcherd.cancels c WHERE NOT EXISTS (
		SELECT FROM dispatcherd.jobs_live j WHERE ` + isNamed + ` AND j.status = 'running')),
	(SELECT jsonb_object_agg(type, jsonb_build_array(before, behind, least))::text FROM (
		SELECT key AS type, coalesce(sum(value::bigint) FILTER (WHERE d.id < $1), 0) AS before,
			coalesce(sum(value::bigint) FILTER (WHERE d.id > $1), 0) AS behind, min(value::bigint) FILTER (WHERE value::bigint > 0) AS least
		FROM dispatcherd.dispatchers d, jsonb_each_text(d.capacity)
		WHERE d.id <> $1 AND d.lost_at IS NULL AND d.beat_at + d.lease > now() GROUP BY key) t)`

// settleSQL carries out cancel requests whose job is not running any more: a
// pending one is cancelled, and a request whose job is final is over. It is part of
// a beat, so it waits for no lock: what somebody is claiming, ending or settling at
// the same moment stays, for the next beat of anybody.
const settleSQL = `
WITH held AS MATERIALIZED (
	SELECT j.ctid FROM dispatcherd.cancels c JOIN dispatcherd.jobs_live j ON ` + isNamed + `
	WHERE j.status = 'pending' ORDER BY j.id + 0 FOR UPDATE OF j SKIP LOCKED
), gone AS (
	DELETE FROM dispatcherd.jobs_live j WHERE j.ctid = ANY (ARRAY (SELECT ctid FROM held)) AND j.status = 'pending' RETURNING j.*
), over AS MATERIALIZED (
	SELECT c.job_id FROM dispatcherd.cancels c
	WHERE c.job_id IN (SELECT id FROM gone) OR NOT EXISTS (SELECT FROM dispatcherd.jobs_live j WHERE ` + isNamed + `)
	ORDER BY c.job_id FOR UPDATE OF c SKIP LOCKED
), settled AS (
	DELETE FROM dispatcherd.cancels WHERE job_id IN (SELECT job_id FROM over)
)
INSERT INTO dispatcherd.jobs_cancelled (` + keptColumns + `, ` + endColumns + `)
SELECT ` + keptColumns + `, failures, crashes, errors, 'cancelled', dispatcher, now() FROM gone`

// BeatResult is what a beat learned.
type BeatResult struct {
	// LeaseLost: somebody has declared this dispatcher lost, or it has handed
	// over. It must stop sending before it does anything else, and join again as
	// a new one.
	LeaseLost bool
	// DBNow is the database clock.
	DBNow time.Time
	// Released counts jobs of lost dispatchers that became pending by this beat.
	Released int
	// Lost reports dispatchers that wait for a Sweep.
	Lost bool
	// Cancels lists jobs that run here and are wanted cancelled.
	Cancels []dispatcherd.JobID
	// Elsewhere is the capacity of the other living dispatchers, by type.
	Elsewhere map[string]int
	// Shares are this dispatcher's parts of the types that others support, too.
	Shares map[string]contract.Share
}

// Join registers a new run of a dispatcher and gives this store its id. Claims
// need a beat at least once a lease from here on.
func (s *Store) Join(ctx context.Context) (int32, error) {
	var id int32
	err := s.lease.do(ctx, OpBeat, func(ctx context.Context, conn *pgx.Conn) (int, error) {
		return 0, conn.QueryRow(ctx, `INSERT INTO dispatcherd.dispatchers (name, lease, incarnation, host_lock) VALUES ($1, $2, $3::uuid, $4::text) RETURNING id`,
			truncate(s.config.Name, 128), s.config.Lease, s.config.Identity.Incarnation, s.config.Identity.lock()).Scan(&id)
	})
	if err != nil {
		return 0, fmt.Errorf("join: %w", err)
	}
	s.mu.Lock()
	s.marks = newMarks() // claims of an earlier run are not ours to forget
	s.mu.Unlock()
	s.epoch.Store(0)
	s.me.Store(id)
	return id, nil
}

// Beat renews the lease, publishes capacity (slots by type) and looks after the
// others. Call it every second or so; the next one after the last has ended.
// An error leaves it open whether the lease was renewed. What it cannot do for the
// others is no error of its own: the observer hears of it, a later beat tries
// again, after ten times as long as it took, and [Store.Sweep] has more time.
func (s *Store) Beat(ctx context.Context, capacity map[string]int) (BeatResult, error) {
	published, err := json.Marshal(capacity)
	if err != nil {
		return BeatResult{}, err
	}
	if capacity == nil {
		published = []byte("{}")
	}
	var res BeatResult
	renewed := false
	err = s.lease.do(ctx, OpBeat, func(ctx context.Context, conn *pgx.Conn) (int, error) {
		var (
			alive, settle bool
			lost          []int32
			elsewhere     *string
		)
		err := conn.QueryRow(ctx, "beat", s.me.Load(), string(published), s.config.Identity.Incarnation).
			Scan(&alive, &res.DBNow, &lost, &res.Cancels, &settle, &elsewhere)
		if err != nil {
			return 0, err
		}
		res.LeaseLost, res.Lost = !alive, len(lost) > 0
		if elsewhere != nil {
			if err := res.learn(*elsewhere, capacity); err != nil {
				return 0, err
			}
		}
		renewed = true
		forgotten := s.forgetEnded(ctx, conn)
		res.Released, err = s.rests.lookAfter(ctx, conn, settle, lost, time.Now().Add(releaseTime))
		return res.Released, errors.Join(forgotten, err)
	})
	if renewed {
		return res, nil
	}
	return res, err
}

// learn reads what the others can do: by type, the slots of those with smaller
// ids and of those with larger ones, and of the one that has the fewest.
func (r *BeatResult) learn(elsewhere string, own map[string]int) error {
	var slots map[string][3]int
	if err := json.Unmarshal([]byte(elsewhere), &slots); err != nil {
		return fmt.Errorf("capacity of the other dispatchers: %w", err)
	}
	r.Elsewhere, r.Shares = make(map[string]int, len(slots)), map[string]contract.Share{}
	for name, n := range slots {
		r.Elsewhere[name] = n[0] + n[1]
		if s := contract.ShareOf(own[name], contract.Others{SmallerIDs: n[0], LargerIDs: n[1], Least: n[2]}); !s.All() {
			r.Shares[name] = s
		}
	}
	return nil
}

// Leave gives up the lease and releases what still runs under it, without
// counting a crash. It returns how many jobs those were. The store may join again.
func (s *Store) Leave(ctx context.Context) (int, error) {
	me := s.me.Load()
	if me == 0 {
		return 0, nil
	}
	n := 0
	err := s.lease.do(ctx, OpBeat, func(ctx context.Context, conn *pgx.Conn) (int, error) {
		var batch pgx.Batch // one transaction; the lock waits for claims in flight
		batch.Queue(`SELECT FROM dispatcherd.dispatchers WHERE id = $1 FOR UPDATE`, me)
		batch.Queue(`UPDATE dispatcherd.dispatchers SET lost_at = coalesce(lost_at, now()), leaving = true, armed = false WHERE id = $1`, me) // leaving: whoever else releases counts no crash
		if err := conn.SendBatch(ctx, &batch).Close(); err != nil {
			return 0, err
		}
		var err error
		n, err = release(ctx, conn, left{me, contract.Released, ""})
		return n, err
	})
	if err != nil {
		return n, fmt.Errorf("leave: %w", err)
	}
	s.me.Store(0)
	return n, nil
}

// SetBell says whether producers are to ring when they insert. It is armed
// whenever there are slots, free or not, because even a busy dispatcher wants to
// know what became due, except while notifications are a storm. Fetch once more
// after arming it: what was inserted before rang for nobody.
func (s *Store) SetBell(ctx context.Context, armed bool) error {
	return s.lease.do(ctx, OpBell, func(ctx context.Context, conn *pgx.Conn) (int, error) {
		tag, err := conn.Exec(ctx, `UPDATE dispatcherd.dispatchers SET armed = $2 WHERE id = $1 AND lost_at IS NULL`, s.me.Load(), armed)
		if err == nil && tag.RowsAffected() == 0 {
			err = notSentError{ErrLeaseLost} // nobody would ring
		}
		return 0, err
	})
}
