package flowstore

import (
	"slices"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/claim"
	"github.com/dispatcherd/dispatcherd/claim/claimfake"
	"github.com/dispatcherd/dispatcherd/internal/contract"
)

// The callback of a batch runs by run_when.
func TestCallbackRunsByTheEndsOfTheMembers(t *testing.T) {
	w := newWorld(t)
	for _, c := range []struct {
		runWhen string
		fails   bool
		want    string
		why     string
	}{
		{"done", false, "pending", ""}, {"done", true, "cancelled", "failed"},
		{"ended", false, "pending", ""}, {"ended", true, "pending", ""},
		{"failed", false, "cancelled", "no member failed"}, {"failed", true, "pending", ""},
	} {
		id := w.open(c.runWhen)
		members := w.members(id, 3)
		w.seal(id)
		w.end(contract.Succeeded, members[:2]...)
		w.countEnds()
		require.Equal(t, "waiting", w.status(id), "one member is open")
		last := contract.Succeeded
		if c.fails {
			last = contract.FailedFinal
		}
		w.end(last, members[2])
		require.Equal(t, "waiting", w.status(id), "the end is not counted yet")
		w.countEnds()
		require.Equal(t, c.want, w.status(id), "%+v", c)
		require.Contains(t, w.reason(id), c.why)
		require.True(t, w.batch(id).Ended)
		if c.want == "pending" {
			require.Equal(t, 3, get[int](w, `SELECT (payload -> 'batch' ->> 'total')::int FROM dispatcherd.jobs WHERE id = $1`, id))
			require.Equal(t, 1, get[int](w, `SELECT (payload ->> 'n')::int FROM dispatcherd.jobs WHERE id = $1`, id), "the payload is kept")
		}
	}
}

// Members may end before the batch is sealed.
func TestMembersThatEndedBeforeTheSealAreCounted(t *testing.T) {
	w := newWorld(t)
	id := w.open("ended")
	members := w.members(id, 4)
	w.end(contract.Succeeded, members[0])
	w.countEnds()
	w.end(contract.FailedFinal, members[1])
	require.Nil(t, w.batch(id).Open)
	w.seal(id) // one end is counted, one is recorded, two members are pending
	require.Equal(t, 3, *w.batch(id).Open)
	w.end(contract.Succeeded, members[2:]...)
	w.countEnds()
	require.Equal(t, "pending", w.status(id))
	require.Equal(t,
		"4 3 1",
		get[string](
			w,
			`SELECT concat_ws(' ', payload -> 'batch' ->> 'total', payload -> 'batch' ->> 'done', payload -> 'batch' ->> 'failed')
				FROM dispatcherd.jobs WHERE id = $1`,
			id,
		),
	)
	w.end(contract.Succeeded, id)
	w.countEnds()
	require.Zero(t, get[int](w, `SELECT count(*) FROM dispatcherd.ends`))
}

// Attack 1: the last member is cancelled, pending and running. The batch fires.
func TestBatchFiresWhenItsLastMemberIsCancelled(t *testing.T) {
	w := newWorld(t)
	id := w.open("ended")
	members := w.members(id, 2)
	w.seal(id)
	w.end(contract.Cancelled, members[0])
	w.exec(`SELECT dispatcherd.end_idle(ARRAY[$1::bigint], 'cancelled', session_user, NULL)`, members[1])
	w.countEnds()
	require.Equal(t, "pending", w.status(id))
	require.Equal(t, 2, w.batch(id).Cancelled)
}

// Attack 2: a dispatcher dies between an end and its settlement. Another one counts the end, and all of them together count it once.
func TestEndsAreCountedOnceByAnyDispatcher(t *testing.T) {
	w := newWorld(t)
	const batches, size = 20, 25
	var ids []int64
	for range batches {
		id := w.open("ended")
		members := w.members(id, size)
		w.seal(id)
		w.end(contract.Succeeded, members...)
		ids = append(ids, id)
	}
	w.store.Close() // it has counted nothing
	var settlers sync.WaitGroup
	for range 4 {
		store, err := claim.Open(t.Context(), claimfake.Config(w.dsn, "test"))
		require.NoError(t, err)
		t.Cleanup(store.Close)
		settlers.Go(func() {
			for more := true; more; {
				r, err := Settler{storeOf(store)}.CountEnds(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				more = r.Blocked
			}
		})
	}
	settlers.Wait()
	require.Zero(t, get[int](w, `SELECT count(*) FROM dispatcherd.ends`))
	for _, id := range ids {
		require.Equal(t, size, w.batch(id).Done)
		require.Equal(t, "pending", w.status(id))
	}
}

// A batch that another transaction has locked stops no other batch.
func TestLockedBatchStopsNoOther(t *testing.T) {
	w := newWorld(t)
	locked, free := w.open("ended"), w.open("ended")
	a, b := w.members(locked, 2), w.members(free, 2)
	w.seal(locked)
	w.seal(free)
	tx := w.begin()
	_, err := tx.Exec(t.Context(), `SELECT FROM dispatcherd.batches WHERE id = $1 FOR UPDATE`, locked)
	require.NoError(t, err)
	w.end(contract.Succeeded, append(a, b...)...)
	r, err := w.CountEnds(t.Context())
	require.NoError(t, err)
	require.True(t, r.Blocked)
	require.Equal(t, "pending", w.status(free))
	require.Equal(t, "waiting", w.status(locked))
	require.NoError(t, tx.Rollback(t.Context()))
	w.countEnds()
	require.Equal(t, "pending", w.status(locked))
}

// Attack 19: a batch has many members. Finishes do not wait for its row, and a settlement changes the row once for all ends.
func TestManyEndsChangeTheirBatchOnce(t *testing.T) {
	w := newWorld(t)
	const size = 3000
	id := w.open("ended")
	members := w.members(id, size+1)
	w.seal(id)
	w.exec(`CREATE TABLE public.changes (id bigint)`)
	w.exec(
		`CREATE FUNCTION public.note() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN INSERT INTO public.changes VALUES (NEW.id); RETURN NULL; END'`,
	)
	w.exec(`CREATE TRIGGER note AFTER UPDATE ON dispatcherd.batches FOR EACH ROW EXECUTE FUNCTION public.note()`)
	tx := w.begin()
	_, err := tx.Exec(t.Context(), `SELECT FROM dispatcherd.batches WHERE id = $1 FOR UPDATE`, id)
	require.NoError(t, err)
	for portion := range slices.Chunk(members[:size], 1000) {
		w.end(contract.Succeeded, portion...)
	}
	require.NoError(t, tx.Rollback(t.Context()))
	w.countEnds()
	require.Equal(t, size, w.batch(id).Done)
	require.Equal(t, 1, *w.batch(id).Open)
	require.Equal(t, 1, get[int](w, `SELECT count(*) FROM public.changes`))
}

// Attack 3: a member is retried. It counts again. If the batch has ended, its callback does not run again.
func TestRetriedMemberCountsUntilTheBatchHasFired(t *testing.T) {
	w := newWorld(t)
	id := w.open("done")
	members := w.members(id, 2)
	w.seal(id)
	w.end(contract.FailedFinal, members[0])
	for _, counted := range []bool{true, false} { // the end was counted, or is recorded only
		if counted {
			w.countEnds()
		}
		require.Equal(t, 1, w.retry(members[:1]...))
		w.countEnds()
		require.Equal(t, 2, *w.batch(id).Open)
		require.Zero(t, w.batch(id).Failed)
		w.end(contract.FailedFinal, members[0])
	}
	require.Equal(t, 1, w.retry(members[:1]...))
	w.end(contract.Succeeded, members...)
	w.countEnds()
	require.Equal(t, "pending", w.status(id), "nothing failed in the end")
	require.Equal(t, 2, w.batch(id).Done)

	id = w.open("ended")
	members = w.members(id, 1)
	w.seal(id)
	w.end(contract.FailedFinal, members...)
	w.countEnds()
	require.Equal(t, "pending", w.status(id))
	require.Equal(t, 1, w.retry(members...))
	w.end(contract.Succeeded, members...)
	w.countEnds()
	require.Zero(t, w.batch(id).Failed)
	require.Equal(t, 1, w.batch(id).Done)
	require.Equal(t, "pending", w.status(id), "the callback does not run again")
}

// Attack 10: a batch without members fires when it is sealed.
func TestEmptyBatchFiresWhenItIsSealed(t *testing.T) {
	w := newWorld(t)
	for runWhen, want := range map[string]string{"done": "pending", "ended": "pending", "failed": "cancelled"} {
		id := w.open(runWhen)
		require.True(t, get[bool](w, `SELECT fired FROM dispatcherd.seal_batch($1)`, id))
		w.countEnds()
		require.Equal(t, want, w.status(id))
		require.True(t, get[bool](w, `SELECT fired FROM dispatcherd.seal_batch($1)`, id), "a second seal changes nothing")
	}
	none := get[int64](w, `SELECT dispatcherd.open_batch()`)
	w.seal(none)
	w.countEnds()
	require.True(t, w.batch(none).Ended, "a batch needs no callback")
	require.Equal(t, "P0002", w.refused(`SELECT dispatcherd.seal_batch(12345)`).Code)
}

// Attack 12: rows that are copied into a sealed batch are not counted: the COPY is refused. So is insert_member.
func TestSealedBatchTakesNoMembers(t *testing.T) {
	w := newWorld(t)
	id := w.open("done")
	members := w.members(id, 1)
	w.seal(id)
	_, err := w.db.CopyFrom(t.Context(), pgx.Identifier{"dispatcherd", "jobs"}, []string{"type", "parent"},
		pgx.CopyFromRows([][]any{{"x", nil}, {"x", id}}))
	require.ErrorContains(t, err, "is sealed")
	e := w.refused(`SELECT dispatcherd.insert_member($1, '{"type": "x"}')`, id)
	require.Equal(t, "23514 batch_is_open", e.Code+" "+e.ConstraintName)
	require.Equal(t, "parent_is_a_batch", w.refused(`INSERT INTO dispatcherd.jobs (type, parent) VALUES ('x', 12345)`).ConstraintName)
	w.end(contract.Succeeded, members...)
	w.countEnds()
	require.Equal(t, 1, w.batch(id).Done)
	require.Equal(t, "pending", w.status(id))
}

// The seal waits for transactions that insert members, so no member is left out.
func TestSealWaitsForInsertsThatBeganBefore(t *testing.T) {
	w := newWorld(t)
	id := w.open("ended")
	producer := w.begin()
	_, err := producer.Exec(t.Context(), `INSERT INTO dispatcherd.jobs (type, parent) VALUES ('x', $1)`, id)
	require.NoError(t, err)
	open := make(chan int, 1)
	go func() {
		var n int
		if err := w.db.QueryRow(t.Context(), `SELECT open FROM dispatcherd.seal_batch($1)`, id).Scan(&n); err != nil {
			t.Error(err)
		}
		open <- n
	}()
	w.awaitLock()
	members := w.members(id, 1) // other members are inserted and counted meanwhile
	w.end(contract.Succeeded, members...)
	w.countEnds()
	require.Equal(t, 1, w.batch(id).Done)
	require.NoError(t, producer.Commit(t.Context()))
	require.Equal(t, 1, <-open)
}

// A batch may be a member of a batch.
func TestBatchIsAMemberOfABatch(t *testing.T) {
	w := newWorld(t)
	outer := w.open("ended")
	inner := get[int64](w, `SELECT dispatcherd.open_batch('{"type": "inner"}', 'ended', parent => $1)`, outer)
	members := w.members(inner, 2)
	w.seal(inner)
	w.seal(outer)
	w.end(contract.Succeeded, members...)
	w.countEnds()
	require.Equal(t, "waiting", w.status(outer))
	w.end(contract.Succeeded, inner)
	w.countEnds()
	require.Equal(t, "pending", w.status(outer))
	require.Equal(t, 1, w.batch(outer).Done)
	require.Equal(t, "batch_is_open", w.refused(`SELECT dispatcherd.open_batch('{"type": "inner"}', parent => $1)`, outer).ConstraintName)
}

// Attack 15: a stale execution reports an end, which is not recorded. A finish that is repeated after an unknown outcome is recorded once.
func TestEndIsRecordedOnce(t *testing.T) {
	w := newWorld(t)
	id := w.open("ended")
	members := w.members(id, 2)
	w.seal(id)
	won := w.claim(members[0])
	w.finish(won, contract.Succeeded, "")
	again := contract.FinishRequest{
		Again: true,
		Items: []contract.Finish{{ID: won[0].ID, Attempt: won[0].Attempt, Outcome: contract.Succeeded}},
	}
	res := w.store.Finish(t.Context(), again)
	require.Empty(t, res.Stale)
	require.Equal(t, 1, get[int](w, `SELECT sum(done) FROM dispatcherd.ends`))

	won = w.claim(members[1])
	w.finish(won, contract.Released, "")
	w.claim(members[1])
	require.Len(t, w.finish(won, contract.Succeeded, "").Stale, 1)
	require.Equal(t, 1, get[int](w, `SELECT sum(done) FROM dispatcherd.ends`))
	w.countEnds()
	require.Equal(t, 1, *w.batch(id).Open)
}

// Each way to end a job is counted.
func TestAllEndsAreCounted(t *testing.T) {
	w := newWorld(t)
	id := w.open("ended")
	members := w.members(id, 4)
	w.seal(id)
	for i, outcome := range []contract.Outcome{contract.Succeeded, contract.FailedFinal, contract.Cancelled, contract.Quarantined} {
		w.end(outcome, members[i])
	}
	w.countEnds()
	b := w.batch(id)
	require.Equal(t, []int{1, 2, 1}, []int{b.Done, b.Failed, b.Cancelled})
	require.True(t, b.Ended)
}

// Plain jobs record no ends.
func TestEndOfAJobWithoutBatchIsNotRecorded(t *testing.T) {
	w := newWorld(t)
	id := get[int64](w, `INSERT INTO dispatcherd.jobs (type) VALUES ('x') RETURNING id`)
	w.end(contract.Succeeded, id)
	require.Zero(t, get[int](w, `SELECT count(*) FROM dispatcherd.ends`))
}

// Invalid arguments are refused with the rule.
func TestInvalidBatchesAreRefused(t *testing.T) {
	w := newWorld(t)
	for sql, rule := range map[string]string{
		`SELECT dispatcherd.open_batch('{"typ": "x"}')`:                                       "job_has_known_members",
		`SELECT dispatcherd.open_batch('{"payload": {}}')`:                                    "job_has_known_members",
		`SELECT dispatcherd.open_batch('{"type": "x", "payload": [1]}')`:                      "payload_is_an_object",
		`SELECT dispatcherd.open_batch('{"type": "x", "unique_key": "k"}')`:                   "job_has_known_members",
		`SELECT dispatcherd.open_batch('{"type": "x"}', 'never')`:                             "run_when_is_done_ended_or_failed",
		`SELECT dispatcherd.open_batch('{"type": "x", "priority": 11}')`:                      "priority_is_0_to_10",
		`SELECT dispatcherd.open_batch('{"type": "x", "keys": "a*b"}')`:                       "keys_are_1_to_4_words",
		`SELECT dispatcherd.open_batch(name => repeat('n', 129))`:                             "name_is_1_to_128_bytes",
		`SELECT dispatcherd.open_batch(parent => 1)`:                                          "parent_needs_a_callback",
		`SELECT dispatcherd.insert_member(dispatcherd.open_batch(), '{"type": ""}')`:          "type_is_1_to_128_bytes",
		`SELECT dispatcherd.insert_member(dispatcherd.open_batch(), '{"type": "x", "a": 1}')`: "job_has_known_members",
	} {
		require.Equal(t, rule, w.refused(sql).ConstraintName, sql)
	}
	require.Zero(t, get[int](w, `SELECT count(*) FROM dispatcherd.jobs`))
}
