package e2e

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Jobs may still wait after all dispatchers were stopped for days. The daily partition must
// exist before the first of them ends.
func TestPartitionsExistBeforeTheFirstJobEnds(t *testing.T) {
	w := newWorld(t)
	w.exec(`DO $$ DECLARE part regclass; BEGIN
		FOR part IN SELECT oid FROM pg_class WHERE relname ~ '^jobs_[a-z]+_\d{8}$' LOOP EXECUTE 'DROP TABLE ' || part; END LOOP;
	END $$`)
	w.start(w.config("d"))
	const tomorrows = `SELECT count(*) FROM pg_class WHERE relname ~ ('^jobs_[a-z]+' || to_char(now() AT TIME ZONE 'UTC' + interval '1 day', '_YYYYMMDD') || '$')`
	require.Equal(t, 3, w.number(tomorrows))
}

// The sweep of a large table exceeds its time limit. The next sweep must not follow without a
// pause.
func TestFailedSweepIsFollowedByAPause(t *testing.T) {
	w := newWorld(t)
	w.exec(`CREATE SEQUENCE tried; CREATE FUNCTION stuck() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		PERFORM nextval('public.tried'), pg_sleep(0.05);
		RAISE EXCEPTION 'stuck';
	END $$; CREATE TRIGGER stuck BEFORE DELETE ON dispatcherd.dispatchers FOR EACH ROW EXECUTE FUNCTION stuck()`)
	w.exec(`INSERT INTO dispatcherd.dispatchers (name, lease, lost_at) VALUES ('lost', '1s', now())`)
	cfg := w.config("d")
	cfg.Heartbeat = 10 * time.Millisecond
	begun := time.Now()
	h := w.start(cfg)
	require.Eventually(t, func() bool { return w.number(`SELECT last_value FROM tried`) >= 3 }, time.Minute, 5*time.Millisecond)
	require.GreaterOrEqual(t, time.Since(begun), 2*10*50*time.Millisecond)
	w.exec(`DROP TRIGGER stuck ON dispatcherd.dispatchers`)
	require.Eventually(t, func() bool {
		return w.number(`SELECT count(*) FROM dispatcherd.dispatchers WHERE lost_at IS NOT NULL`) == 0
	},
		time.Minute, 20*time.Millisecond)
	require.NoError(t, h.stop())
}
