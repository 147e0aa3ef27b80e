package claim_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/claim"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/pgtest"
)

// queueReports collects the states of the notification queue.
type queueReports struct {
	*reports
	queue chan claim.QueueState
}

func (r queueReports) Queue(q claim.QueueState) { r.queue <- q }

func mayNotify(may string) string {
	return `CREATE OR REPLACE FUNCTION dispatcherd.may_notify() RETURNS boolean LANGUAGE sql AS 'SELECT ` + may + `'`
}

// While the notification queue is too full, the listener keeps its connection and names
// the session that blocks the queue.
func TestListenerKeepsItsPlaceInAFullQueue(t *testing.T) {
	t.Parallel()
	dsn := pgtest.New(t)
	db, blocker := connect(t, dsn), connect(t, dsn)
	seen := queueReports{newReports(), make(chan claim.QueueState, 1000)}
	s := open(t, claim.Config{DSN: dsn, Observer: seen})
	_, err := s.Join(t.Context())
	require.NoError(t, err)
	l := s.Listen()
	t.Cleanup(l.Close)
	require.True(t, <-seen.listening)
	<-l.Jobs()
	require.Less(t, (<-seen.queue).Usage, 0.5)
	listener := `SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'dispatcherd listen%'`
	pid := one[int](t, db, listener)

	exec(t, blocker, `LISTEN zz`)
	exec(t, blocker, `BEGIN`)
	exec(t, blocker, `SELECT 1`)
	exec(t, db, mayNotify("false"))
	require.False(t, <-seen.listening)
	deadline := time.After(time.Minute)
	for named := false; !named; {
		select {
		case q := <-seen.queue:
			named = slices.ContainsFunc(q.Blocking, func(b claim.BlockingSession) bool { return b.PID == int32(blocker.PgConn().PID()) })
		case <-seen.listening:
		case <-deadline:
			t.Fatal("the session was not named")
		}
	}
	require.Equal(t, pid, one[int](t, db, listener), "a new connection would have to read the whole queue")

	exec(t, db, mayNotify("true"))
	for !<-seen.listening {
	}
	<-l.Jobs() // notifications were missed
	require.Equal(t, pid, one[int](t, db, listener))
}

// No statement notifies while the notification queue is too full.
func TestFullQueueFailsNoStatement(t *testing.T) {
	t.Parallel()
	dsn := pgtest.New(t)
	db := connect(t, dsn)
	s := open(t, claim.Config{DSN: dsn})
	_, err := s.Join(t.Context())
	require.NoError(t, err)
	require.NoError(t, s.SetSubscribed(t.Context(), true))
	exec(t, db, `INSERT INTO dispatcherd.dispatchers (name, lease, armed) VALUES ('other', '10s', true)`)
	exec(t, db, `LISTEN dispatcherd_jobs`)
	exec(t, db, `LISTEN dispatcherd_cancel`)
	exec(t, db, mayNotify("false"))
	fill(t, db, 2, 1, 1)
	require.Len(t, s.Claim(t.Context(), claimOf(1, 2)).Won, 2)
	status, err := claim.Jobs{DB: db}.Cancel(t.Context(), 2)
	require.NoError(t, err)
	require.Equal(t, dispatcherd.Running, status)
	require.Empty(t, finish(t, s, contract.Finish{ID: 1, Attempt: 1, Outcome: contract.Crashed}))
	_, err = s.Leave(t.Context())
	require.NoError(t, err)
	exec(t, db, `NOTIFY dispatcherd_jobs, 'end'`)
	n, err := db.WaitForNotification(t.Context())
	require.NoError(t, err)
	require.Equal(t, "end", n.Payload)
}
