package claim_test

import (
	"testing"

	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/stretchr/testify/require"
)

// A payload of JSON null is a value, and a payload that no worker could receive is refused before the child exists.
func TestPayloadOfAChildIsKeptOrRefused(t *testing.T) {
	t.Parallel()
	db, s := joinedAlone(t)
	exec(t, db, `INSERT INTO dispatcherd.jobs (id, type) VALUES (900001, 'pdf')`)
	exec(t, db, `UPDATE dispatcherd.jobs_live SET status = 'running', attempt = 1, dispatcher = 1, token = 5, started_at = now()`)
	spawn := func(jobs string) contract.SpawnResult {
		return s.Spawn(t.Context(), contract.SpawnRequest{Parent: 900001, Attempt: 1, Jobs: []byte(jobs)})
	}
	r := spawn(`[{"type": "a", "payload": null}, {"type": "b"}]`)
	require.Empty(t, r.Reason)
	require.Equal(t, "null {}",
		one[string](t, db, `SELECT string_agg(payload::text, ' ' ORDER BY type) FROM dispatcherd.jobs WHERE type <> 'pdf'`))
	r = spawn(`[{"type": "a"}, {"type": "a", "payload": {"n": 1e5000}}]`)
	require.Equal(t, "child_is_a_job", r.Rule)
	require.Equal(t, "child 2 cannot be sent to a worker: it contains a number of more than 1,024 characters, written out", r.Reason)
}

// Only unique keys need the owner that the setting dispatcherd.owner names.
func TestWrongOwnerRefusesOnlyChildrenWithUniqueKeys(t *testing.T) {
	t.Parallel()
	db, s := joinedAlone(t)
	exec(t, db, `INSERT INTO dispatcherd.jobs (id, type) VALUES (900001, 'pdf')`)
	exec(t, db, `UPDATE dispatcherd.jobs_live SET status = 'running', attempt = 1, dispatcher = 1, token = 5, started_at = now()`)
	exec(t, db, `DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET dispatcherd.owner = nosuch', current_database()); END $$`)
	spawn := func(jobs string) contract.SpawnResult {
		return s.Spawn(t.Context(), contract.SpawnRequest{Parent: 900001, Attempt: 1, Jobs: []byte(jobs)})
	}
	require.Len(t, spawn(`[{"type": "a"}, {"type": "b", "unique_key": null}]`).IDs, 2)
	require.Equal(t, contract.OwnerRule, spawn(`[{"type": "a"}, {"type": "b", "unique_key": "k"}]`).Rule)
}
