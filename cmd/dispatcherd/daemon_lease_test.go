package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Whoever was away for days has jobs waiting. If the first one ended on a day
// without a leaf, that day would get none.
func TestTheLeavesAreThereBeforeAnythingEnds(t *testing.T) {
	w := newWorld(t)
	w.exec(`DO $$ DECLARE leaf regclass; BEGIN
		FOR leaf IN SELECT oid FROM pg_class WHERE relname ~ '^jobs_[a-z]+_\d{8}$' LOOP EXECUTE 'DROP TABLE ' || leaf; END LOOP;
	END $$`)
	w.start(w.config("d"))
	const tomorrows = `SELECT count(*) FROM pg_class WHERE relname ~ ('^jobs_[a-z]+' || to_char(now() AT TIME ZONE 'UTC' + interval '1 day', '_YYYYMMDD') || '$')`
	require.Equal(t, 3, w.number(tomorrows))
}
