package claim

// A lease has the length Config.Lease, by default DefaultLease. shell.Silence decides which
// other dispatchers are lost, and heartbeatSQL declares them lost. holdsLease is part of
// every claim and adoption (statements.go). shell.Lease stops this dispatcher before the end
// of its own lease. The interval of heartbeats is shell.Interval.

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/jackc/pgx/v5"
)

var leaseStatements = statements{
	{"heartbeat", "renews the lease and reads what this dispatcher must know", heartbeatSQL},
	{"waiting", "reads what waits for a service", waitingSQL},
	{"forget", "removes the records of claims whose jobs have ended", forgetSQL},
}

// isTarget joins row j with operation o. File statements.go explains its form.
const isTarget = `j.id BETWEEN o.target AND o.target AND o.target > 0`

// askedSQL reads the jobs that run under dispatcher $1 and for whose cancellation there is a request.
const askedSQL = `
SELECT DISTINCT o.target FROM dispatcherd.operations o JOIN dispatcherd.jobs_live j ON ` + isTarget + `
WHERE o.kind = 'cancel' AND j.status = 'running' AND j.dispatcher = $1::int ORDER BY 1`

// OpenOperation is true for operation o unless it is a request to cancel a running job, which another statement handles, or an edit.
const OpenOperation = `o.kind NOT IN ('schedule_edited', 'limits_edited') AND NOT (o.kind = 'cancel' AND EXISTS (
		SELECT FROM dispatcherd.jobs_live j WHERE ` + isTarget + ` AND j.status = 'running'))`

// heartbeatSQL renews the lease of dispatcher $1 with incarnation $3, publishes its
// capacity $2, declares dispatchers lost that were observed to be silent, and reads what
// this dispatcher needs to know. $4 and $5 are HeartbeatRequest.Beat and OldestBeat. $6
// are the silent dispatchers. $7 and $8 are the controls that
// it follows and its drained workers. A dispatcher that has sent another heartbeat meanwhile is
// not lost. A lease that was handed over is not renewed: a heartbeat that arrives after
// the hand-over would publish slots that no longer exist.
// releaseSQL releases the rows of lost dispatchers. It is another statement, because it
// needs a later snapshot. The dispatcher becomes the controller if the former one is not
// alive. A row of the table controller says who has this role. A statement of the former controller
// may have locked the row. Then the heartbeat does not wait for it, and a later heartbeat takes the role.
// An operator may have emptied all tables, so that the row is missing. Then the heartbeat inserts a new
// row. Its term is larger than those of all controllers before. A later heartbeat takes the role.
//
// No condition compares beat_at with the database clock, because the clock may be set.
const heartbeatSQL = `
WITH renewed AS (
	UPDATE dispatcherd.dispatchers
	SET beat_at = now(), beats = $4::bigint, capacity = coalesce($2::jsonb, '{}'), controls = $7::bigint, drained = $8::jsonb
	WHERE id = $1::int AND incarnation = $3::uuid AND ` + holdsLease + ` AND beats BETWEEN $5::bigint AND $4 RETURNING id
), silent AS MATERIALIZED (
	SELECT d.id FROM json_to_recordset($6) AS s ("ID" int, "BeatAt" bigint) JOIN dispatcherd.dispatchers d ON d.id = s."ID"
	WHERE d.id <> $1 AND d.lost_at IS NULL AND ` + beatAt + ` = s."BeatAt"
	ORDER BY d.id FOR UPDATE OF d SKIP LOCKED
), lost AS (
	UPDATE dispatcherd.dispatchers d SET lost_at = now(), armed = false FROM silent s WHERE d.id = s.id RETURNING d.id
), vacant AS MATERIALIZED (
	SELECT c.one FROM dispatcherd.controller c WHERE EXISTS (SELECT FROM renewed) AND NOT EXISTS (
		SELECT FROM dispatcherd.dispatchers d WHERE d.id = c.dispatcher AND ` + Alive + ` AND d.id NOT IN (SELECT id FROM lost))
	FOR UPDATE OF c SKIP LOCKED
), role AS (
	UPDATE dispatcherd.controller c SET dispatcher = $1, term = c.term + 1, since = now() FROM vacant v WHERE c.one = v.one RETURNING c.term
), role_again AS (
	INSERT INTO dispatcherd.controller (term) SELECT extract(epoch FROM now())::bigint FROM renewed
	WHERE NOT EXISTS (SELECT FROM dispatcherd.controller) ON CONFLICT DO NOTHING
)
SELECT EXISTS (SELECT FROM renewed),
	(SELECT jsonb_agg(jsonb_build_array(d.id, ` + beatAt + `, (extract(epoch FROM d.lease) * 1000000)::bigint,
			(d.id <> $1 AND d.lost_at IS NULL)::int, (d.lost_at IS NOT NULL OR d.id IN (SELECT id FROM lost))::int) ORDER BY d.id)
		FROM dispatcherd.dispatchers d),
	ARRAY (` + askedSQL + `),
	(SELECT jsonb_object_agg(type, jsonb_build_array(smaller, larger, least)) FROM (
		SELECT key AS type, coalesce(sum(value::bigint) FILTER (WHERE d.id < $1), 0) AS smaller,
			coalesce(sum(value::bigint) FILTER (WHERE d.id > $1), 0) AS larger, min(value::bigint) FILTER (WHERE value::bigint > 0) AS least
		FROM dispatcherd.dispatchers d, jsonb_each_text(d.capacity)
		WHERE d.id <> $1 AND d.lost_at IS NULL GROUP BY key) t),
	coalesce((SELECT term FROM role), (SELECT term FROM dispatcherd.controller WHERE dispatcher = $1), 0),
	coalesce((SELECT edits_read FROM dispatcherd.controller), 0), coalesce((SELECT controls FROM dispatcherd.controller), 0),
	(extract(epoch FROM clock_timestamp()) * 1000000)::bigint`

// waitingSQL reads whether there is something of which a notification may have been lost. Its time grows with the rows that were
// deleted since the oldest snapshot.
const waitingSQL = `
SELECT ARRAY[
		EXISTS (SELECT FROM dispatcherd.jobs_live j WHERE j.keys IS NOT NULL AND j.fence IS NULL)
			OR EXISTS (SELECT FROM dispatcherd.operations WHERE kind = 'limits_edited'),
		EXISTS (SELECT FROM dispatcherd.ends ORDER BY target, id LIMIT 1),
		EXISTS (SELECT FROM dispatcherd.operations WHERE kind = 'schedule_edited'),
		EXISTS (SELECT FROM dispatcherd.operations o WHERE ` + OpenOperation + `),
		EXISTS (SELECT FROM dispatcherd.summaries WHERE asked_at > now() - interval '2 s')]`

// waiting are the topics of waitingSQL.
var waiting = [...]contract.Topics{contract.KeysWait, contract.EndsWait, contract.EditsWait, contract.OperationsWait, contract.WatchAsked}

// Alive is true for dispatcher d unless it was declared lost or has left.
const Alive = `d.lost_at IS NULL AND NOT d.leaving AND d.incarnation IS NOT NULL`

// beatAt is contract.Heard.BeatAt of dispatcher d.
const beatAt = `(extract(epoch FROM d.beat_at) * 1000000)::bigint`

// joinSQL adds a run of a dispatcher: $1 id, $2 name, $3 lease, $4 incarnation, $5 lock.
// It returns no row if the id exists. $6 is the id of the former run of this process, or
// 0. This process no longer holds the rows of that run. So the former run is lost, also
// if its row is missing or valid because an earlier state of the table was restored. Then
// this process gives it up on its own, which is no crash. The founder is that of a
// dispatcher that is alive. Without one this dispatcher founds a new start of the cluster.
const joinSQL = `
WITH former AS (
	INSERT INTO dispatcherd.dispatchers AS d (id, name, lease, incarnation, lost_at, leaving) OVERRIDING SYSTEM VALUE
	SELECT $6::int, $2::text, $3::interval, $4::uuid, now(), true WHERE $6 > 0
	ON CONFLICT (id) DO UPDATE SET lost_at = now(), leaving = true, armed = false
	WHERE d.incarnation = excluded.incarnation AND d.lost_at IS NULL AND NOT d.leaving
)
INSERT INTO dispatcherd.dispatchers (id, name, lease, incarnation, host_lock, founder) OVERRIDING SYSTEM VALUE
SELECT $1::int, $2, $3, $4, nullif($5::text, ''), coalesce((
	SELECT coalesce(d.founder, d.id) FROM dispatcherd.dispatchers d WHERE ` + Alive + ` AND d.id <> $6 ORDER BY d.started_at LIMIT 1), $1)
ON CONFLICT (id) DO NOTHING RETURNING id`

// Join registers a new run of a dispatcher and gives this store its id. From then on
// the dispatcher can claim only while it sends at least one heartbeat per lease. The id is random. A sequence would
// assign the id of a living dispatcher again after an earlier state was restored. The records of a former
// run are kept, because the workers still execute its jobs: an adoption may take them over.
func (s *Store) Join(ctx context.Context) (int32, error) {
	id := int32(0)
	err := s.lease.do(ctx, OpHeartbeat, func(c Session) (int, error) {
		for {
			var batch pgx.Batch // one transaction; the lock orders dispatchers that join at the same time
			batch.Queue(`SELECT FROM dispatcherd.controller FOR UPDATE`)
			batch.Queue(
				joinSQL,
				1+rand.Int32N(math.MaxInt32),
				truncate(s.config.Name, 128),
				s.config.Lease,
				s.config.Identity.Incarnation,
				s.config.Identity.Lock,
				s.me.Load(),
			).QueryRow(ScanRow(&id))
			err := c.SendBatch(c, &batch).Close()
			if !errors.Is(err, pgx.ErrNoRows) { // no row: the id exists, which has a probability below 1 in 1,000,000
				return 0, err
			}
		}
	})
	if err != nil {
		return 0, fmt.Errorf("join: %w", err)
	}
	s.epoch.Store(0)
	s.me.Store(id)
	return id, nil
}

// Heartbeat renews the lease and publishes capacity (slots by type). It declares silent dispatchers lost, and [Store.Release]
// releases their jobs. Call Heartbeat about once per second, one call at a
// time. After an error the lease may have been renewed. If the removal of records or the release of unheld rows fails,
// only the observer gets the error, and later heartbeats repeat it.
func (s *Store) Heartbeat(ctx context.Context, req contract.HeartbeatRequest) (contract.HeartbeatResult, error) {
	var res contract.HeartbeatResult
	renewed := false
	err := s.lease.do(ctx, OpHeartbeat, func(c Session) (int, error) {
		if err := s.beat(c, &req, &res); err != nil {
			return 0, err
		}
		renewed = true
		forgotten := s.forgetEnded(c)
		var failed error
		if !res.LeaseLost {
			res.Unheld, failed = s.releaseUnheld(c, time.Now().Add(releaseTime))
		}
		return len(res.Unheld), cmp.Or(forgotten, failed)
	})
	if renewed {
		return res, nil
	}
	return res, err
}

// beat executes heartbeatSQL.
func (s *Store) beat(c Session, req *contract.HeartbeatRequest, res *contract.HeartbeatResult) (err error) {
	var (
		alive    bool
		peers    [][5]int64
		capacity map[string][3]int
		clock    int64
		found    []bool
	)
	begun, beaten := time.Now(), false
	var batch pgx.Batch
	batch.Queue("BEGIN")
	batch.Queue("heartbeat", s.me.Load(), req.Capacity, s.config.Identity.Incarnation, req.Beat, req.OldestBeat, req.Silent,
		req.Controls, req.Drained).QueryRow(func(row pgx.Row) error {
		err := row.Scan(&alive, &peers, &res.Cancels, &capacity, &res.Term, &res.EditsRead, &res.Controls, &clock)
		beaten = err == nil
		return err
	})
	batch.Queue("SAVEPOINT beaten")
	batch.Queue("SET LOCAL statement_timeout = '200ms'")
	batch.Queue("waiting").QueryRow(ScanRow(&found))
	batch.Queue("COMMIT")
	err = c.SendBatch(c, &batch).Close()
	if beaten && AnswerCode(err) != "" { // it took too long, or cannot be read: to look without a reason costs less than the lease
		found = slices.Repeat([]bool{true}, len(waiting))
		_, err = c.Exec(c, "ROLLBACK TO beaten; COMMIT")
	}
	if err != nil {
		if !c.IsClosed() {
			_, _ = c.Exec(c, "ROLLBACK")
		}
		return err
	}
	res.Clock, res.ClockRead = time.UnixMicro(clock), begun.Add(time.Since(begun)/2)
	meet(res, peers)
	if res.LeaseLost = !alive; res.LeaseLost {
		res.Term = 0
	}
	for i, is := range found {
		if is {
			res.Waiting |= waiting[i]
		}
	}
	if capacity != nil {
		learn(res, capacity, req.Capacity)
	}
	return nil
}

// meet reads the rows of the dispatchers: id, beat, lease, whether it is another one that was not lost, and whether it is lost now.
func meet(res *contract.HeartbeatResult, rows [][5]int64) {
	for _, r := range rows {
		if r[3] == 1 {
			res.Others = append(res.Others, contract.Heard{ID: int32(r[0]), BeatAt: r[1], Lease: time.Duration(r[2]) * time.Microsecond})
		}
		if r[4] == 1 {
			res.Waiting |= contract.DispatcherLost
		}
	}
}

// learn reads the capacity of the other dispatchers. For each type, slots contains
// the slots of the dispatchers with smaller ids, the slots of those with larger ids,
// and the slots of the dispatcher with the fewest.
func learn(r *contract.HeartbeatResult, slots map[string][3]int, own map[string]int) {
	r.OtherCapacity, r.Shares = make(map[string]int, len(slots)), map[string]contract.Share{}
	for name, n := range slots {
		r.OtherCapacity[name] = n[0] + n[1]
		if s := contract.ShareOf(own[name], contract.Others{SmallerIDs: n[0], LargerIDs: n[1], Least: n[2]}); !s.All() {
			r.Shares[name] = s
		}
	}
}

// Leave ends the lease and releases the jobs that still run under it, without
// counting a crash. It returns their number. The store may join again.
func (s *Store) Leave(ctx context.Context) (int, error) {
	// The dispatcher is marked as leaving, so that a release by another one counts no crash.
	return s.depart(ctx, "leave", s.release,
		`UPDATE dispatcherd.dispatchers SET lost_at = coalesce(lost_at, now()), leaving = true, armed = false WHERE id = $1`)
}

// depart ends this run by a statement about it, and then calls after. It returns the number of jobs that after has released.
func (s *Store) depart(
	ctx context.Context,
	what string,
	after func(Session, Operation, int32) (int, error),
	sql string,
	args ...any,
) (n int, err error) {
	me := s.me.Load()
	if me == 0 {
		return 0, nil
	}
	err = s.lease.do(ctx, OpHeartbeat, func(c Session) (int, error) {
		_, err := afterClaims(c, me, sql, args...)
		if err == nil && after != nil {
			n, err = after(c, OpHeartbeat, me)
		}
		return n, err
	})
	if err != nil {
		return n, fmt.Errorf("%s: %w", what, err)
	}
	s.me.Store(0)
	return n, nil
}

// afterClaims executes a statement about dispatcher $1 after its claims that are in flight, and returns the epoch. FOR UPDATE waits for
// the share locks that claims hold on the row; a plain UPDATE would not. Without a row the epoch is 0: none of its claims can succeed.
func afterClaims(c Session, me int32, sql string, args ...any) (epoch int32, err error) {
	var batch pgx.Batch // one transaction
	batch.Queue(`SELECT set_config('lock_timeout', current_setting('statement_timeout'), true)`)
	batch.Queue(`SELECT FROM dispatcherd.dispatchers WHERE id = $1 FOR UPDATE`, me)
	batch.Queue(sql+` RETURNING epoch`, slices.Concat([]any{me}, args)...).QueryRow(ScanRow(&epoch))
	if err = c.SendBatch(c, &batch).Close(); errors.Is(err, pgx.ErrNoRows) {
		err = nil
	}
	return epoch, err
}

// SetSubscribed opens or closes the notification gate. Producers notify while at
// least one dispatcher is subscribed. A dispatcher should be subscribed while its
// workers have slots, free or not, because a busy dispatcher must also know which
// rows are due. It should end its subscription for a time if there are too many
// notifications. Fetch once after subscribing, because earlier inserts sent no
// notification.
func (s *Store) SetSubscribed(ctx context.Context, subscribed bool) error {
	n, err := s.lease.of(OpSubscribe).Exec(ctx,
		`UPDATE dispatcherd.dispatchers SET armed = $2 WHERE id = $1 AND lost_at IS NULL`, s.me.Load(), subscribed)
	if err == nil && n == 0 {
		err = ErrLeaseLost // no row was changed, so no producer would notify
	}
	return err
}

// Incarnation is a random number that each process of the dispatcher generates at
// its start. The zero value means none.
type Incarnation [16]byte

// Identity identifies one process of the dispatcher, so that a later process that
// holds the same lock can declare it lost.
//
// Before [Store.Join] the process locks a lock file on its host and writes its
// Incarnation into the file. Lock names the file by the boot id of the host, the
// device and the inode, so that no two files have the same name. A copy of the file
// contains the same Incarnation but has another name.
type Identity struct {
	Incarnation Incarnation
	Lock        string // at most 256 bytes; "" = there is no lock, and only the lease ends this dispatcher
}

// declareLostSQL ends the leases of the dispatchers with incarnation $1 that joined
// under lock $2. FOR UPDATE waits for their claims in flight. Claims that arrive
// later name an old epoch and take nothing. The statement removes the incarnation, so
// the heartbeats of these dispatchers fail. No dispatcher releases their running rows
// during $3, so that the workers can offer to resume the jobs. The time of each earlier
// predecessor under the lock is halved, down to $4: only a living dispatcher observes
// its end, so each predecessor of a process that dies again and again would keep its jobs.
const declareLostSQL = `
WITH predecessor AS MATERIALIZED (
	SELECT id FROM dispatcherd.dispatchers
	WHERE incarnation = $1::uuid AND host_lock = $2::text AND lost_at IS NULL AND NOT leaving
	ORDER BY id FOR UPDATE
), earlier AS (
	UPDATE dispatcherd.dispatchers SET lease = least(lease, greatest(lease / 2, $4::interval))
	WHERE incarnation IS NULL AND host_lock = $2 AND lost_at IS NULL AND NOT leaving AND EXISTS (SELECT FROM predecessor)
)
UPDATE dispatcherd.dispatchers d
SET incarnation = NULL, epoch = epoch + 1, armed = false, capacity = '{}', beat_at = now(),
	lease = CASE WHEN $3::interval > interval '0' THEN $3 ELSE lease END,
	lost_at = CASE WHEN $3 > interval '0' THEN NULL ELSE now() END
FROM predecessor p WHERE d.id = p.id`

// DeclareLost ends the lease of the dispatcher that joined with the identity of
// predecessor, and reports whether there was such a dispatcher. From then on the
// predecessor can neither claim nor renew its lease, and its capacity does not count.
// During hold its running jobs can be adopted. Afterwards the next heartbeat of any
// dispatcher releases the remaining jobs and counts a crash for each. With hold 0 the
// next heartbeat releases all of them. The hold of each earlier predecessor is halved, down
// to least, during which its workers may still run their jobs.
//
// The caller must hold the lock that predecessor.Lock names, and must have read
// predecessor.Incarnation from the file of the lock. Then no living process has this
// identity, because a living process would hold its lock. DeclareLost does not affect
// a dispatcher that has another incarnation, another lock or no lock, or that has
// handed over. No dispatcher matches an identity without incarnation or lock, so DeclareLost then returns false.
//
// DeclareLost may be called before [Store.Join]. After an error it may be called again.
func (s *Store) DeclareLost(ctx context.Context, predecessor Identity, hold, least time.Duration) (found bool, err error) {
	n, err := s.lease.of(OpHeartbeat).Exec(ctx, declareLostSQL, predecessor.Incarnation, predecessor.Lock, hold, least)
	if err != nil {
		return false, fmt.Errorf("declare the predecessor lost: %w", err)
	}
	return n > 0, nil
}
