package flowstore

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/flow"
)

// Cancelled jobs are kept for a shorter time than failed ones. So the callback may be gone while the members are there.
func TestRetryIsRefusedIfTheCallbackThatDidNotRunIsGone(t *testing.T) {
	w := newWorld(t)
	for runWhen, deleted := range map[string]string{"done": "its callback did not run, and was deleted by retention", "ended": ""} {
		batch := w.open(runWhen)
		member := w.members(batch, 1)
		w.seal(batch)
		w.end(contract.FailedFinal, member...)
		w.countEnds()
		if runWhen == "ended" {
			w.end(contract.Succeeded, batch)
		}
		w.exec(`DELETE FROM dispatcherd.jobs WHERE id = $1`, batch)
		_, err := w.askRetry(batch)
		if deleted != "" {
			require.ErrorContains(t, err, deleted)
			continue
		}
		require.NoError(t, err, "it has run, and does not run again")
		w.countEnds()
		require.Equal(t, "pending", w.status(member[0]))
	}
}

func TestRetryOfAnOuterBatchSaysWhichInnerMemberIsGone(t *testing.T) {
	w := newWorld(t)
	outer := w.open("done")
	inner := get[int64](w, `SELECT dispatcherd.open_batch('{"type": "callback"}', parent => $1)`, outer)
	member := w.members(inner, 1)[0]
	w.seal(inner)
	w.seal(outer)
	w.end(contract.FailedFinal, member)
	w.countEnds()
	require.Equal(t, "cancelled", w.status(outer))
	w.exec(`DELETE FROM dispatcherd.jobs WHERE id = $1`, member)
	w.retryTree(outer)
	require.Equal(t, "cancelled", w.status(inner))
	require.Contains(t, w.reason(inner), "failed, and cannot run again: retention has deleted its row")
}

func TestNewestJobOfAUniqueKeyIsRetriedInWhateverPortionItIs(t *testing.T) {
	w := newWorld(t)
	batch := w.open("ended")
	var members []int64
	for range 3 {
		id := get[int64](w, `INSERT INTO dispatcherd.jobs (type, parent, unique_key) VALUES ('x', $1, 'k') RETURNING id`, batch)
		w.end(contract.FailedFinal, id)
		members = append(members, id)
	}
	w.seal(batch)
	w.countEnds()
	w.end(contract.Succeeded, batch)
	w.countEnds()
	_, err := w.askRetry(batch)
	require.NoError(t, err)
	for left := true; left; {
		r, err := w.Step(t.Context(), dispatcherd.JobID(batch), flow.Limits{Items: 1, Bytes: 1000})
		require.NoError(t, err)
		left = r.Left
	}
	for i, status := range []string{"failed", "failed", "pending"} {
		require.Equal(t, status, w.status(members[i]))
	}
}

// A message of an ended batch, for example of a retry that was just answered, needs the batch and its records.
func TestBatchesWithMessagesDoNotExpire(t *testing.T) {
	w := newWorld(t)
	batch, aside, asked := w.open("done"), w.open("done"), w.open("done")
	w.exec(`UPDATE dispatcherd.batches SET ended_at = now() - interval '2 hours', sealed_at = now(), open = 0`)
	w.exec(`UPDATE dispatcherd.batches SET aside = 'a page is damaged', aside_at = now() WHERE id = $1`, aside)
	w.exec(`INSERT INTO dispatcherd.ends (target, walk) VALUES ($1, 'retry')`, asked)
	_, err := w.Expire(t.Context(), time.Hour)
	require.NoError(t, err)
	require.Equal(t, []int64{aside, asked}, get[[]int64](w, `SELECT array_agg(id ORDER BY id) FROM dispatcherd.batches`))
	require.NotContains(t, []int64{aside, asked}, batch)
}
