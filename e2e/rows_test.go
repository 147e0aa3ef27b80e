package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/actor"
	"github.com/dispatcherd/dispatcherd/claim"
)

// Postgres refuses to claim one row.
func TestUnclaimableRowIsSetAside(t *testing.T) {
	w := newWorld(t)
	bad := w.insertNew(claim.New{Type: "x", Priority: 9}, work{})
	w.exec(`CREATE FUNCTION public.refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'refused by the test'; END $$`)
	w.exec(
		fmt.Sprintf(
			`CREATE TRIGGER refuse BEFORE UPDATE ON dispatcherd.jobs_live
				FOR EACH ROW WHEN (NEW.id = %d AND NEW.status = 'running') EXECUTE FUNCTION public.refuse()`,
			bad,
		),
	)
	h := w.start(w.config("d"))
	w.worker("w", h.cfg.WorkerSocket, scriptSlots{N: 1, Types: []string{"x"}})
	for range 20 {
		w.await(w.insert("x", work{}), dispatcherd.Done)
	}
	var x actor.Explanation
	eventually(t, func() bool {
		x = actor.Explain(actor.Inquiry{ID: bad, Type: "x", Priority: 9}, h)
		return strings.Contains(x.SetAside, "refused by the test")
	}, func() string { return fmt.Sprintf("the reason of Postgres; there is %+v", x) })
	require.Contains(t, h.log.text(), fmt.Sprintf(`"job":%d`, bad))
	require.Positive(t, metricsOn(t, h.cfg)[`dispatcherd_jobs_total{event="set_aside"}`])
	require.NotContains(t, h.log.text(), "Postgres does not answer")
	require.NotContains(t, h.log.text(), "refused by the test", "a message may quote the row")
	w.exec(`DROP TRIGGER refuse ON dispatcherd.jobs_live`)
	w.exec(`UPDATE dispatcherd.jobs SET run_at = now() + interval '1 hour' WHERE status = 'pending'`) // its pause lasts a minute
}
