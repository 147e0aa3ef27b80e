package e2e

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/internal/exit"
	"github.com/dispatcherd/dispatcherd/internal/pgtest"
)

func TestCommandWithoutRightSaysWhatToGrant(t *testing.T) {
	url := pgtest.New(t)
	as := func(role string) string { return url + "&options=-c%20role%3D" + role }
	for command, role := range map[string]string{
		"job get 1": "dispatcherd_operator", "job cancel 1": "dispatcherd_operator", "job insert --type pdf": "dispatcherd_producer",
	} {
		got := onDatabase(t, as("dispatcherd_reader"), "", command)
		require.Equal(t, exit.Usage, got.code, "%s: %s", command, got.err)
		require.Contains(t, got.err, "permission denied for ", command)
		require.Contains(t, got.err, "GRANT "+role+" TO ", command)
		require.NotContains(t, got.err, "--help", "%s: the command line is correct", command)
	}
	got := onDatabase(t, as("dispatcherd_reader"), "", "migrate down --to 8 --yes")
	require.Equal(t, exit.Usage, got.code, got.err)
	require.Contains(t, got.err, "use the owner of the schema")
	got = onDatabase(t, as("dispatcherd_producer"), "", "serve")
	require.Equal(t, exit.Usage, got.code, got.err)
	require.Contains(t, got.err, "GRANT dispatcherd_dispatcher TO ")
	got = onDatabase(t, as("dispatcherd_dispatcher"), "", "serve --migrate")
	require.Equal(t, exit.Usage, got.code, got.err)
	require.Contains(t, got.err, "use the owner of the schema")
	require.NotContains(t, got.err, "GRANT")
}

// A role that may not create roles migrates. The command and the status name the missing roles.
// After a superuser has created them, the next command grants their rights.
func TestMigrationWithoutTheRightToCreateRolesNamesThem(t *testing.T) {
	t.Parallel()
	server, _ := ownServer(t)
	w := newWorldOn(t, server.URL("postgres"))
	w.exec("CREATE ROLE migrator NOLOGIN")
	w.exec("GRANT CREATE ON DATABASE postgres TO migrator")
	as := func(role string) string { return w.dsn + "&options=-c%20role%3D" + role }

	for _, command := range []string{"migrate up", "migrate status"} {
		got := onDatabase(t, as("migrator"), "", command)
		require.Equal(t, exit.OK, got.code, got.err)
		require.Contains(
			t,
			got.err,
			"the server has no role dispatcherd_producer, dispatcherd_reader, dispatcherd_operator, dispatcherd_dispatcher",
			command,
		)
		require.Contains(t, got.err, "CREATE ROLE dispatcherd_producer NOLOGIN;", command)
	}
	for _, role := range []string{"dispatcherd_producer", "dispatcherd_reader", "dispatcherd_operator", "dispatcherd_dispatcher"} {
		w.exec("CREATE ROLE " + role + " NOLOGIN")
	}
	got := onDatabase(t, as("migrator"), "", "migrate up")
	require.Equal(t, exit.OK, got.code, got.err)
	require.Empty(t, got.err)
	got = onDatabase(t, as("dispatcherd_producer"), "", "job insert --type pdf")
	require.Equal(t, exit.OK, got.code, got.err)
}
