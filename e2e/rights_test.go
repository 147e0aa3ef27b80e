package e2e

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/internal/exit"
)

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
		require.Contains(t, got.err,
			"the server has no role dispatcherd_producer, dispatcherd_reader, dispatcherd_operator, dispatcherd_dispatcher",
			command)
		require.Contains(t, got.err, "CREATE ROLE dispatcherd_producer NOLOGIN;", command)
	}
	for _, role := range []string{"dispatcherd_producer", "dispatcherd_reader", "dispatcherd_operator", "dispatcherd_dispatcher"} {
		w.exec("CREATE ROLE " + role + " NOLOGIN")
	}
	got := onDatabase(t, as("migrator"), "", "migrate up")
	require.Equal(t, exit.OK, got.code, got.err)
	require.Empty(t, got.err)
	w.exec(`SET ROLE dispatcherd_producer; INSERT INTO dispatcherd.jobs (type) VALUES ('pdf'); RESET ROLE`)
}
