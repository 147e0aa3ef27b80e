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
var insertedColumns = regexp.MustCompile(
	`(?s)INSERT INTO dispatcherd\.(?:jobs|jobs_live|jobs_waiting|jobs_cancelled) \(([^)]*)\)\s+SELECT (.*?) FROM gone`,
)

// otherValues are the values of columns whose names they do not contain.
var otherValues = map[string][]string{
	"status":       {"'cancelled'", "again"},
	"finished_at":  {"now()"},
	"cancelled_by": {"by"},
	"run_at":       {"due"},
	"parent":       {"member"},
}

// values splits a list of expressions at the commas outside of parentheses.
func values(list string) (all []string) {
	depth, begin := 0, 0
	for i, c := range list {
		switch {
		case c == '(':
			depth++
		case c == ')':
			depth--
		case c == ',' && depth == 0:
			all, begin = append(all, strings.TrimSpace(list[begin:i])), i+1
		}
	}
	return append(all, strings.TrimSpace(list[begin:]))
}

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
		"end_idle":  "dispatcher, placement, started_at",
		"run_again": "cancelled_by, crashes, dispatcher, failures, fence, finished_at, log, placement, run_at, started_at",
	} {
		source := one[string](t, db, `SELECT prosrc FROM pg_proc WHERE oid = 'dispatcherd.`+function+`'::regproc`)
		lists := insertedColumns.FindStringSubmatch(source)
		require.NotNil(t, lists, "%s has no INSERT … SELECT:\n%s", function, source)
		require.Equal(t, all, sorted(lists[1]+","+unset), "%s: a new column needs a migration of the function, or must be unset", function)
		columns, copied := strings.Split(lists[1], ","), values(lists[2])
		require.Len(t, copied, len(columns), "%s", function)
		for i := range columns {
			name := strings.TrimSpace(columns[i])
			if !slices.Contains(otherValues[name], copied[i]) {
				require.Regexp(t, `\b`+name+`\b`, copied[i], "%s: the value of column %s", function, name)
			}
		}
	}
}
