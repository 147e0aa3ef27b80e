package daemon

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/dispatcherd/dispatcherd/actor"
	"github.com/dispatcherd/dispatcherd/actor/effect"
	"github.com/dispatcherd/dispatcherd/claim"
	"github.com/dispatcherd/dispatcherd/internal/shell"
	"github.com/dispatcherd/dispatcherd/internal/timing"
	"github.com/dispatcherd/dispatcherd/migrations"
)

// Each kind of statement has its own connection. If the server closes all of them, they
// fail and succeed in turn for some seconds.
func TestFailureOfManyConnectionsIsLoggedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core, lines := observer.New(zap.InfoLevel)
		tr := &statementLog{log: zap.New(core)}
		ok := func(op claim.Operation) { tr.report(claim.Report{Operation: op}) }
		gone := func(op claim.Operation) { tr.report(claim.Report{Operation: op, Err: errors.New("conn closed")}) }
		ok(claim.OpFetch)
		for range 2 {
			for _, op := range []claim.Operation{claim.OpFetch, claim.OpClaim, claim.OpFinish, claim.OpHeartbeat} {
				gone(op)
				ok(op)
				time.Sleep(recovered - time.Millisecond)
			}
			require.Equal(t, []string{"Postgres does not answer"}, messages(lines.All()))
			time.Sleep(time.Millisecond)
			ok(claim.OpHeartbeat)
			ok(claim.OpFetch)
			require.Equal(t, []string{"Postgres does not answer", "Postgres answers again"}, messages(lines.All()))
			require.Equal(t, 3*(recovered-time.Millisecond), lines.All()[1].ContextMap()["outage"])
			lines.TakeAll()
		}
	})
}

func TestLostLeaseIsNotLoggedAsSilence(t *testing.T) {
	core, lines := observer.New(zap.InfoLevel)
	tr := &statementLog{log: zap.New(core)}
	tr.report(claim.Report{Operation: claim.OpClaim, Err: fmt.Errorf("claim: %w", claim.ErrLeaseLost)})
	require.Equal(t, []string{"this dispatcher has lost its lease"}, messages(lines.All()))
}

// Postgres answers, but cannot execute a statement. The log names the cause, once for each
// cause.
func TestErrorOfPostgresIsNotLoggedAsSilence(t *testing.T) {
	for code, want := range map[string]string{
		"53100": "Postgres lacks resources: connections, memory or disk space",
		"53300": "Postgres lacks resources: connections, memory or disk space",
		"55P03": "Postgres refuses a statement",
		"40001": "Postgres refuses a statement",
		"57P03": "Postgres does not answer",
		"25006": "Postgres is read-only",
	} {
		core, lines := observer.New(zap.InfoLevel)
		tr := &statementLog{log: zap.New(core)}
		for range 2 {
			tr.report(
				claim.Report{
					Operation: claim.OpClaim,
					Err:       &pgconn.PgError{Severity: "ERROR", SeverityUnlocalized: "ERROR", Code: code, Message: "cause"},
				},
			)
		}
		require.Equal(t, []string{want}, messages(lines.All()), code)
		require.Equal(t, want, "Postgres "+tr.outage(), "the probes say the same")
		require.Contains(t, lines.All()[0].ContextMap()["error"], code)
		tr.report(claim.Report{Operation: claim.OpClaim, Err: errors.New("conn closed")})
		require.Contains(t, messages(lines.All()), "Postgres does not answer")
	}
}

// The error quotes a child or a row, and any worker and producer can cause it.
func TestErrorAboutARowIsNotLogged(t *testing.T) {
	core, lines := observer.New(zap.DebugLevel)
	tr := &statementLog{log: zap.New(core)}
	for _, op := range []claim.Operation{claim.OpSpawn, claim.OpClaim, claim.OpFinish, claim.OpLoad, claim.OpFetch} {
		tr.report(claim.Report{Operation: op, Err: &pgconn.PgError{SeverityUnlocalized: "ERROR", Code: "23514", Message: "payload"}})
	}
	require.Empty(t, messages(lines.All()))
}

// The message of an exception may quote a payload.
func TestMessageOfAnExceptionIsNotLogged(t *testing.T) {
	core, lines := observer.New(zap.InfoLevel)
	tr := &statementLog{log: zap.New(core)}
	tr.report(claim.Report{Operation: claim.OpSweep, Err: &pgconn.PgError{Code: "P0001", Message: "secret"}})
	require.Contains(t, lines.All()[0].ContextMap()["error"], "SQLSTATE P0001")
	require.NotContains(t, lines.All()[0].ContextMap()["error"], "secret")
}

func messages(lines []observer.LoggedEntry) (all []string) {
	for _, l := range lines {
		all = append(all, l.Message)
	}
	return all
}

// A database that cannot be used has answered, so the log must not say that Postgres does
// not answer.
func TestUnusableDatabaseIsNotLoggedAsUnavailable(t *testing.T) {
	core, lines := observer.New(zap.InfoLevel)
	tr := &statementLog{log: zap.New(core)}
	for _, err := range []error{&migrations.VersionError{Have: -1, Want: 10}, claim.ErrTransactionPool} {
		tr.report(claim.Report{Operation: claim.OpConnect, Err: fmt.Errorf("open the store: %w", err)})
	}
	require.Empty(t, messages(lines.All()))
	tr.report(claim.Report{Operation: claim.OpConnect, Err: errors.New("connection refused")})
	require.Equal(t, []string{"Postgres does not answer"}, messages(lines.All()))
}

func TestAMissingRightIsLoggedWithTheGrantThatAddsIt(t *testing.T) {
	core, lines := observer.New(zap.InfoLevel)
	tr := &statementLog{log: zap.New(core), dsn: "postgres://web:secret@db/app"}
	refused := claim.Report{
		Operation: claim.OpClaim,
		Err:       &pgconn.PgError{Severity: "ERROR", Code: "42501", Message: "permission denied for table claims"},
	}
	tr.report(refused)
	tr.report(refused)
	tr.report(claim.Report{Operation: claim.OpFetch})
	require.Equal(t, 1, lines.Len())
	require.Contains(t, lines.All()[0].Message, `the role "web" of --database-url lacks this right`)
	require.Contains(t, lines.All()[0].Message, `GRANT dispatcherd_dispatcher TO "web";`)
	require.NotContains(t, lines.All()[0].Message, "secret")
	require.Contains(t, lines.All()[0].ContextMap()["error"], "table claims")
	tr.report(claim.Report{Operation: claim.OpClaim})
	tr.report(claim.Report{Operation: claim.OpClaim})
	require.Equal(t, "Postgres executes the statement again", lines.All()[1].Message)
	require.Equal(t, 2, lines.Len())
}

// The listener reports each failed attempt, at most five seconds apart.
func TestALostListenConnectionIsLoggedOnce(t *testing.T) {
	core, lines := observer.New(zap.InfoLevel)
	arrive := true
	loop := actor.NewActor(actor.New(actor.DefaultConfig()), func(_ *actor.Core, _ timing.Instant, ev actor.Event, _ []effect.Effect) {
		if listening, is := ev.(actor.Listening); is {
			arrive = listening.On
		}
	})
	loop.Start(&shell.Ports{Statement: func(effect.Effect) {}})
	defer loop.Stop()
	o := &storeObserver{Daemon: &Daemon{log: zap.New(core), loop: loop}}
	told := func(up bool, why error) (now bool) {
		o.Listening(up, why)
		loop.Ask(func(*actor.Core) { now = arrive })
		return now
	}
	for range 2 {
		for range 3 {
			require.False(t, told(false, errors.New("connection refused")))
		}
		require.True(t, told(true, nil))
		require.Equal(t, []string{"no notifications, only polling finds new jobs", "notifications arrive"}, messages(lines.TakeAll()))
	}
}
