package trial

import (
	"context"
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/dispatcherd/dispatcherd/tools/lab/internal/history"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/judge"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/stage"
)

// largeFill is an array of 80,000 numbers, which takes 960 kB as jsonb.
var largeFill = "[1000" + strings.Repeat(",2357", 79_999) + "]"

// largeBatch is the number of large payloads of one transaction, by Size.
var largeBatch = [3]int{250, 250, 700}

var largeBatches = Trial{
	Name: "large-batches",
	About: fmt.Sprintf(
		"hundreds of jobs with payloads of 960 kB become due at once, and each has a free slot: jobs of another type start within %v (p99)",
		promptly,
	),
	Setup: stage.Setup{
		Daemons: 1, Workers: 2, Offers: []stage.Offer{{Slots: 350, Types: []string{"large"}}, {Slots: 4, Types: []string{"small"}}},
		Mix: func(n int64) history.Work { return history.Work{N: n, Type: "small", Ms: 5} }, Types: []string{"large", "small"}, Rate: 100,
	},
	Jobs:  [3]int{500, 1000, 5000},
	Least: [3]time.Duration{8 * time.Second, 10 * time.Second, time.Minute},
	Before: func(ctx context.Context, s *Scene) error {
		// A compression takes longer than the insertion.
		if err := s.Exec(ctx, `ALTER TABLE dispatcherd.jobs ALTER COLUMN payload SET STORAGE EXTERNAL`); err != nil {
			return err
		}
		large := func(n int64) history.Work { return history.Work{N: n, Type: "large", Ms: 5} }
		return s.Producer.Burst(ctx, largeBatch[s.Size], large, largeFill)
	},
	Verify: func(s *Scene, h *history.History, r *judge.Report) []string {
		return append(untroubled(s, h, r), s.checkOthers(h, r, "large", promptly)...)
	},
}

// damageSQL creates a function that makes the payload of one random row of a status
// unreadable. The function removes the first chunk of the payload from the TOAST table,
// and returns the job, or NULL if no row has a suitable payload. The row is locked
// meanwhile, so no dispatcher changes its status. The chunk is found by its text,
// because Postgres before version 17 does not tell the number of a value.
const damageSQL = `
CREATE EXTENSION pg_surgery;
CREATE FUNCTION chaos.damage(wanted dispatcherd.status) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
	toast regclass := (SELECT reltoastrelid FROM pg_class WHERE oid = 'dispatcherd.jobs_live'::regclass);
	victim bigint;
	number bigint;
	mark bytea;
	chunks tid[];
BEGIN
	SELECT id INTO victim FROM dispatcherd.jobs_live
		WHERE status = wanted AND pg_column_size(payload) > 3000 AND id NOT IN (SELECT job FROM chaos.damaged)
		ORDER BY random() LIMIT 1 FOR UPDATE SKIP LOCKED;
	SELECT (payload->>'n')::bigint, convert_to(left(payload->>'fill', 100), 'UTF8') INTO number, mark
	FROM dispatcherd.jobs_live WHERE id = victim;
	EXECUTE format('SELECT array_agg(ctid) FROM %s WHERE chunk_seq = 0 AND position($1 IN chunk_data) > 0', toast) INTO chunks USING mark;
	IF chunks IS NULL THEN
		RETURN NULL;
	END IF;
	PERFORM heap_force_kill(toast, chunks);
	INSERT INTO chaos.damaged VALUES (victim, number);
	RETURN victim;
END $$`

// withFill returns short jobs, and jobs of type rare with payloads that are stored
// outside of their rows. Half of these payloads are so short that a claim reads them.
func withFill(n int64) history.Work {
	w := withBacklog(n)
	if w.Type != "rare" {
		return w
	}
	dice := rand.NewChaCha8([32]byte{byte(n), byte(n >> 8), byte(n >> 16), byte(n >> 24)})
	random := make([]byte, 3000+6000*(n%2))
	_, _ = dice.Read(random) // always succeeds
	w.Fill = base64.StdEncoding.EncodeToString(random)
	return w
}

// replaceDamaged replaces the unreadable payloads of running jobs, as an operator does, when no damaged job is pending
// any more. Postgres does not record the ends of these jobs before. If damaged jobs are still pending after a minute, they
// never start: nothing is replaced, and the judge finds the jobs lost.
func replaceDamaged(ctx context.Context, conn *pgx.Conn) error {
	const pending = `SELECT count(*) FROM dispatcherd.jobs_live JOIN chaos.damaged ON job = id WHERE status = 'pending'`
	wait := time.NewTicker(100 * time.Millisecond)
	defer wait.Stop()
	until := time.Now().Add(time.Minute)
	for n := 1; n > 0; <-wait.C {
		if time.Now().After(until) {
			return nil
		}
		if err := conn.QueryRow(ctx, pending).Scan(&n); err != nil {
			return err
		}
	}
	_, err := conn.Exec(ctx, `UPDATE dispatcherd.jobs_live SET payload = 'null' WHERE id IN (SELECT job FROM chaos.damaged)`)
	return err
}

var unreadableRows = Trial{
	Name: "unreadable-rows",
	About: fmt.Sprintf(
		"payloads of pending and running jobs become unreadable: they end when they are replaced, "+
			"all others start and are recorded within %v (p99)",
		promptly,
	),
	Setup:     stage.Setup{Daemons: 2, Workers: 1, Flags: patientFlags(), Offers: offers, Mix: withFill, Types: types, Rate: 200},
	Jobs:      [3]int{1500, 3000, 40_000},
	Least:     [3]time.Duration{8 * time.Second, 15 * time.Second, 3 * time.Minute},
	Extension: "pg_surgery",
	Trouble: func(ctx context.Context, s *Scene) error {
		s.keptFor("none", 0)
		if err := s.Exec(ctx, damageSQL); err != nil {
			return err
		}
		conn, err := pgx.Connect(ctx, s.URL())
		if err != nil {
			return err
		}
		defer conn.Close(context.WithoutCancel(ctx))
		s.every(ctx, 150*time.Millisecond, func(i int) {
			var job *int64
			if failed := conn.QueryRow(context.WithoutCancel(ctx), `SELECT chaos.damage($1)`, []string{"pending", "running"}[i%2]).
				Scan(&job); failed != nil {
				err = failed
			} else if job != nil {
				s.affected[*job] = true
			}
		})
		if err == nil {
			err = replaceDamaged(context.WithoutCancel(ctx), conn)
		}
		return err
	},
	Verify: func(s *Scene, h *history.History, r *judge.Report) (failures []string) {
		ends := map[string]int{}
		for i := range h.Rows {
			row := &h.Rows[i]
			if row.Damaged {
				ends[row.Status]++
			} else if row.Crashes > 0 || row.Failures > 0 {
				failures = append(failures, fmt.Sprintf("the readable job %d has %d crashes and %d failures", row.Job, row.Crashes, row.Failures))
			}
		}
		s.Note("damaged", len(s.affected))
		s.Note("damaged_failed", ends["failed"])
		s.Note("damaged_done", ends["done"])
		if ends["failed"] == 0 {
			failures = append(failures, "no job failed because of its payload")
		}
		return append(failures, s.checkOthers(h, r, "rare", promptly)...)
	},
}
