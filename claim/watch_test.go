package claim_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/claim"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/pgtest"
)

// exchanges returns a function that writes a summary for a dispatcher, in a database with dispatchers 1 and 2.
func exchanges(t *testing.T) (dsn string, exchange func(me int32, text string, ask bool) []contract.Member) {
	dsn = pgtest.New(t)
	db := connect(t, dsn)
	exec(t, db, `INSERT INTO dispatcherd.dispatchers (id, name, lease, incarnation) OVERRIDING SYSTEM VALUE
		VALUES (1, 'b', '30 s', gen_random_uuid()), (2, 'a', '30 s', gen_random_uuid())`)
	return dsn, func(me int32, text string, ask bool) []contract.Member {
		members, err := claim.Jobs{DB: db}.Exchange(t.Context(), me, []byte(text), ask)
		require.NoError(t, err)
		return members
	}
}

func TestExchangeReadsWhatTheOthersHaveWritten(t *testing.T) {
	t.Parallel()
	dsn, exchange := exchanges(t)
	db := connect(t, dsn)
	require.Empty(t, exchange(2, `{"slots": 1}`, false), "who does not ask reads nothing")
	require.Empty(t, exchange(2, `{"slots": 7}`, false))
	require.Zero(t, one[int](t, db, `SELECT count(*) FROM dispatcherd.summaries WHERE asked_at IS NOT NULL`))
	members := exchange(1, `{"slots": 3}`, true)
	require.Len(t, members, 2)
	require.Equal(t, "b", members[0].Name, "its own row is the first")
	require.Nil(t, members[0].Text)
	require.Equal(t, "a", members[1].Name)
	require.JSONEq(t, `{"slots": 7}`, string(members[1].Text))
	require.Less(t, members[1].ReadAt.Sub(*members[1].WrittenAt), time.Minute)
	require.Equal(t, "running", members[1].State)
	require.GreaterOrEqual(t, members[1].HeartbeatAge, 0.0)
	require.Nil(t, members[0].Troubles)
	require.Equal(t, 1, one[int](t, db, `SELECT count(*) FROM dispatcherd.summaries WHERE asked_at IS NOT NULL`))
}

// A dispatcher that is lost, or whose row is missing, leaves no summary, because no sweep would delete it.
func TestLostDispatcherWritesNoSummary(t *testing.T) {
	t.Parallel()
	dsn, exchange := exchanges(t)
	db := connect(t, dsn)
	exchange(1, `{}`, false)
	exec(t, db, `UPDATE dispatcherd.dispatchers SET lost_at = now() WHERE id = 2`)
	exchange(2, `{}`, false)
	exchange(3, `{}`, false)
	require.Equal(t, 1, one[int](t, db, `SELECT count(*) FROM dispatcherd.summaries`))
	members := exchange(1, `{}`, true)
	require.Equal(t, "lost", members[1].State)
	require.Nil(t, members[1].WrittenAt)

	exec(t, db, `INSERT INTO dispatcherd.summaries VALUES (2, now(), NULL, '{}'), (9, now(), NULL, '{}')`)
	s := open(t, claim.Config{DSN: dsn})
	_, err := s.Sweep(t.Context())
	require.NoError(t, err)
	require.Equal(t, 1, one[int](t, db, `SELECT count(*) FROM dispatcherd.summaries`), "the sweep has deleted those of lost dispatchers")
}

func TestExchangeNamesRefusedSchedulesAndWhatIsSetAside(t *testing.T) {
	t.Parallel()
	dsn, exchange := exchanges(t)
	db := connect(t, dsn)
	exec(t, db, `INSERT INTO dispatcherd.schedules (name, kind, every, type)
		VALUES ('hourly', 'interval', '1 hour', 'x'), ('torn', 'interval', '1 hour', 'x')`)
	exec(t, db, `UPDATE dispatcherd.schedules SET error = 'no such time' WHERE name = 'torn'`)
	id := one[int](t, db, `SELECT dispatcherd.open_batch()`)
	exec(t, db, `UPDATE dispatcherd.batches SET aside = 'bad', aside_at = now() WHERE id = $1`, id)
	members := exchange(1, `{}`, true)
	require.JSONEq(t, fmt.Sprintf(`[["schedule_refused", "torn", "no such time"], ["flow_set_aside", "batch %d", "bad"]]`, id),
		string(members[0].Troubles))
	require.Empty(t, members[1].Troubles)
}

// If a notification was lost, the next heartbeat finds that a dispatcher asks.
func TestHeartbeatFindsThatADispatcherAsks(t *testing.T) {
	t.Parallel()
	dsn, exchange := exchanges(t)
	s := open(t, claim.Config{DSN: dsn})
	_, err := s.Join(t.Context())
	require.NoError(t, err)
	asked := func() bool {
		res, err := s.Heartbeat(t.Context(), contract.HeartbeatRequest{})
		require.NoError(t, err)
		return res.Waiting&contract.WatchAsked != 0
	}
	require.False(t, asked())
	exchange(1, `{}`, false)
	require.False(t, asked())
	exchange(1, `{}`, true)
	require.True(t, asked())
	exec(t, connect(t, dsn), `UPDATE dispatcherd.summaries SET asked_at = now() - interval '3 s'`)
	require.False(t, asked())
}
