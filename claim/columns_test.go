package claim_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/dispatcherd/dispatcherd/claim"
	"github.com/dispatcherd/dispatcherd/internal/pgtest"
	"github.com/stretchr/testify/require"
)

// insertedColumns matches the column lists of an INSERT … SELECT.
var insertedColumns = regexp.MustCompile(`(?s)INSERT INTO dispatcherd\.\w+ \(([^)]*)\)\s+SELECT (.*) FROM gone`)

// canceller is the value of cancelled_by in cancel_pending.
const canceller = `CASE WHEN has_column_privilege(session_user, 'dispatcherd.jobs', 'cancelled_by', 'UPDATE') THEN coalesce(by, session_user) ELSE session_user END`

// unreadable matches a column that the function drops if it cannot be read.
var unreadable = regexp.MustCompile(`(?s)CASE WHEN readable THEN (\w+) ELSE .*? END`)

// sorted splits a list of columns and returns them in order.
func sorted(list string) []string {
	names := strings.Split(list, ",")
	for i := range names {
		names[i] = strings.TrimSpace(names[i])
	}
	slices.Sort(names)
	return names
}

// The SQL functions that move rows copy the same columns as the statements, except for
// the columns that are not set in the new place.
func TestFunctionsThatMoveRowsKnowAllColumns(t *testing.T) {
	t.Parallel()
	db := connect(t, pgtest.New(t))
	all := sorted(claim.KeptColumns + "," + claim.EndColumns)
	for function, unset := range map[string]string{
		"cancel_pending": "dispatcher, placement, started_at",
		"retry_jobs":     "cancelled_by, crashes, dispatcher, failures, fence, finished_at, log, placement, run_at, started_at, status",
	} {
		source := one[string](t, db, `SELECT prosrc FROM pg_proc WHERE oid = 'dispatcherd.`+function+`'::regproc`)
		lists := insertedColumns.FindStringSubmatch(source)
		require.NotNil(t, lists, "%s has no INSERT … SELECT:\n%s", function, source)
		require.Equal(t, all, sorted(lists[1]+","+unset), "%s: a new column needs a migration of the function, or must be unset", function)
		values := strings.NewReplacer("'cancelled'", "status", "now()", "finished_at", canceller, "cancelled_by", "coalesce(first_run_at, run_at)", "first_run_at").Replace(unreadable.ReplaceAllString(lists[2], "$1"))
		require.Equal(t, sorted(lists[1]), sorted(values), "%s", function)
	}
}
