package e2e

import (
	"fmt"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

const doneJobs = `SELECT count(*) FROM dispatcherd.jobs WHERE status = 'done'`

// refuseMany makes Postgres refuse to claim many rows with the highest scores. It starts a
// worker whose 20 slots support their type a and type b; another slot supports type c.
func refuseMany(t *testing.T, refused int) (*world, *host) {
	w := newWorldAlone(t)
	w.exec(`CREATE FUNCTION public.refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'refused by the test'; END $$`)
	w.exec(
		`CREATE TRIGGER refuse BEFORE UPDATE ON dispatcherd.jobs_live FOR EACH ROW WHEN (NEW.priority = 9 AND NEW.status = 'running') EXECUTE FUNCTION public.refuse()`,
	)
	h := w.start(w.config("d"))
	w.worker("w", h.cfg.WorkerSocket, scriptSlots{N: 20, Types: []string{"a", "b"}}, scriptSlots{N: 1, Types: []string{"c"}})
	h.awaitSlots(21)
	w.exec(`INSERT INTO dispatcherd.jobs (type, priority) SELECT 'a', 9 FROM generate_series(1, $1::int)`, refused)
	eventually(t, func() bool { return h.gauges().Aside > 20 }, func() string { return "refused rows" })
	return w, h
}

func TestManyRefusedRowsStopNoOtherType(t *testing.T) {
	for _, refused := range []int{200, 3000} {
		t.Run(strconv.Itoa(refused), func(t *testing.T) {
			w, h := refuseMany(t, refused)
			w.exec(`INSERT INTO dispatcherd.jobs (type, priority) SELECT t, 3 FROM unnest('{b,c}'::text[]) t, generate_series(1, 100)`)
			eventually(
				t,
				func() bool { return w.number(doneJobs) == 200 },
				func() string { return fmt.Sprintf("200 done jobs; there are %d", w.number(doneJobs)) },
			)
			require.Less(t, w.number(`SELECT (1000 * extract(epoch FROM max(finished_at - run_at)))::int FROM dispatcherd.jobs_done`), 3000)
			require.NotContains(t, h.log.text(), "Postgres does not answer")
			w.exec(`DELETE FROM dispatcherd.jobs_live`)
		})
	}
}

// The refused rows are set aside. Then jobs of their type with lower scores are claimed.
func TestManyRefusedRowsStopNoOtherJobOfTheirType(t *testing.T) {
	for _, refused := range []int{200, 1500} {
		t.Run(strconv.Itoa(refused), func(t *testing.T) {
			w, _ := refuseMany(t, refused)
			w.exec(`INSERT INTO dispatcherd.jobs (type, priority) SELECT 'a', 3 FROM generate_series(1, 100)`)
			eventually(
				t,
				func() bool { return w.number(doneJobs) == 100 },
				func() string { return fmt.Sprintf("100 done jobs; there are %d", w.number(doneJobs)) },
			)
			t.Logf(
				"the slowest job was done after %d ms",
				w.number(`SELECT (1000 * extract(epoch FROM max(finished_at - run_at)))::int FROM dispatcherd.jobs_done`),
			)
			w.exec(`DROP TRIGGER refuse ON dispatcherd.jobs_live`)
			eventually(
				t,
				func() bool { return w.number(doneJobs) >= 300 },
				func() string { return fmt.Sprintf("300 done jobs; there are %d", w.number(doneJobs)) },
			)
			w.exec(`UPDATE dispatcherd.jobs SET run_at = now() + interval '1 hour' WHERE status = 'pending'`)
		})
	}
}
