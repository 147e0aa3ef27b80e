package claim_test

import (
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
	queue chan float64
}

func (r queueReports) Queue(usage float64) { r.queue <- usage }

// ignore receives notifications.
func ignore(contract.Topics) {}

func mayNotify(may string) string {
	return `CREATE OR REPLACE FUNCTION dispatcherd.may_notify() RETURNS boolean LANGUAGE sql AS 'SELECT ` + may + `'`
}

// listener reads the pid of the session that listens.
const listener = `SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'dispatcherd listen%'`

// While the notification queue is too full, the listener keeps its connection.
func TestListenerKeepsItsPlaceInAFullQueue(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Alone(t)
	db := connect(t, dsn)
	seen := queueReports{newReports(), make(chan float64, 1000)}
	s := open(t, claim.Config{DSN: dsn, Observer: seen})
	_, err := s.Join(t.Context())
	require.NoError(t, err)
	l := s.Listen(ignore)
	t.Cleanup(l.Close)
	require.True(t, <-seen.listening)
	<-l.Jobs()
	require.Less(t, <-seen.queue, 0.5)
	pid := one[int](t, db, listener)

	exec(t, db, mayNotify("false"))
	require.False(t, <-seen.listening)
	for range 2 {
		require.False(t, <-seen.listening)
	}
	require.Equal(t, pid, one[int](t, db, listener), "a new connection would have to read the whole queue")

	exec(t, db, mayNotify("true"))
	for !<-seen.listening {
	}
	<-l.Jobs() // notifications were missed
	require.Equal(t, pid, one[int](t, db, listener))
}

// The server answers a check only after it has read the notification queue. Meanwhile the
// dispatcher polls, and the listener keeps its connection. A lock stands for the reading.
func TestListenerWaitsWhileTheServerReadsTheQueue(t *testing.T) {
	t.Parallel()
	dsn := pgtest.New(t)
	db := connect(t, dsn)
	seen := newReports()
	s := open(t, claim.Config{DSN: dsn, Observer: seen, Timeout: 500 * time.Millisecond})
	_, err := s.Join(t.Context())
	require.NoError(t, err)
	exec(t, db, `SELECT pg_advisory_lock(7)`)
	exec(t, db, mayNotify("pg_advisory_xact_lock(7) IS NOT NULL"))
	l := s.Listen(ignore)
	t.Cleanup(l.Close)
	waiting := `SELECT count(*) FROM pg_locks l JOIN pg_database d ON d.oid = l.database
		WHERE d.datname = current_database() AND l.locktype = 'advisory' AND NOT l.granted`
	require.False(t, <-seen.listening, "the dispatcher must poll")
	require.Eventually(t, func() bool { return one[int](t, db, waiting) == 1 }, 10*time.Second, time.Millisecond, "the check goes on")
	pid := one[int](t, db, listener)
	exec(t, db, `SELECT pg_advisory_unlock(7)`)
	require.True(t, <-seen.listening)
	require.Equal(t, pid, one[int](t, db, listener))

	exec(t, db, `SELECT pg_advisory_lock(7)`)
	require.False(t, <-seen.listening, "a later check waits as well")
	require.Equal(t, pid, one[int](t, db, listener))
	begun := time.Now()
	l.Close()
	require.Less(t, time.Since(begun), 5*time.Second, "the check in flight must not delay the end")
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
	exec(t, db, `LISTEN dispatcherd`)
	exec(t, db, mayNotify("false"))
	fill(t, db, 2, 1, 1)
	require.Len(t, s.Claim(t.Context(), claimOf(1, 2)).Won, 2)
	status, err := claim.Jobs{DB: db}.Cancel(t.Context(), 2)
	require.NoError(t, err)
	require.Equal(t, dispatcherd.Running, status)
	require.Empty(t, finish(t, s, contract.Finish{ID: 1, Attempt: 1, Outcome: contract.Crashed}))
	_, err = s.Leave(t.Context())
	require.NoError(t, err)
	exec(t, db, `NOTIFY dispatcherd, 'end'`)
	n, err := db.WaitForNotification(t.Context())
	require.NoError(t, err)
	require.Equal(t, "end", n.Payload)
}
