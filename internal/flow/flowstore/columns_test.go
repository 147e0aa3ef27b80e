package flowstore

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A release sets all columns of a job that a waiting one has.
func TestReleaseKnowsAllColumns(t *testing.T) {
	w := newWorld(t)
	list := regexp.MustCompile(`INSERT INTO dispatcherd.jobs_live \(([^)]*)\)`).FindStringSubmatch(releaseSQL)[1]
	const without = "admitted_at admitted_to cancelled_by crashes deadline dispatcher failures fence finished_at log placement progress " +
		"result started_at status token unique_key"
	require.ElementsMatch(t, get[[]string](w, `SELECT array_agg(attname::text) FROM pg_attribute
		WHERE attrelid = 'dispatcherd.jobs'::regclass AND attnum > 0 AND NOT attisdropped`),
		append(strings.FieldsFunc(list, func(r rune) bool { return strings.ContainsRune(", \n\t", r) }), strings.Fields(without)...))
}
