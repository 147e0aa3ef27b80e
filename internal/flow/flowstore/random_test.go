package flowstore

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/flow"
	"github.com/dispatcherd/dispatcherd/internal/flow/joins"
)

// chance does random operations on one database.
type chance struct {
	*world
	*rand.Rand
	ids []int64 // of jobs
}

// some returns random jobs with a status that no transaction has locked.
func (c *chance) some(status string) (ids []int64) {
	rows, err := c.db.Query(c.t.Context(), `SELECT id FROM dispatcherd.jobs_live WHERE status::text = $1
		ORDER BY random() LIMIT $2 FOR UPDATE SKIP LOCKED`,
		status, 1+c.IntN(4))
	require.NoError(c.t, err)
	ids, err = pgx.CollectRows(rows, pgx.RowTo[int64])
	require.NoError(c.t, err)
	return ids
}

// target returns a random batch or flow for which a condition holds; 0 = there is none.
func (c *chance) target(condition string) int64 {
	return get[int64](c.world, `SELECT coalesce((SELECT id FROM dispatcherd.batches b WHERE `+condition+` ORDER BY random() LIMIT 1), 0)`)
}

func (c *chance) insertFlow() {
	var nodes []string
	for n := range 1 + c.IntN(6) {
		var after []string
		for e := range n {
			if c.IntN(2) == 0 {
				after = append(after, fmt.Sprintf(`"n%d"`, e))
			}
		}
		if len(c.ids) > 0 && c.IntN(3) == 0 {
			after = append(after, strconv.FormatInt(c.ids[c.IntN(len(c.ids))], 10))
		}
		nodes = append(nodes, fmt.Sprintf(`{"name": "n%d", "type": "x", "run_when": "%s", "after": [%s]}`, n,
			[]string{"done", "ended"}[c.IntN(2)], strings.Join(after, ", ")))
	}
	_, ids := c.flow(fmt.Sprintf(`{"callback": {"type": "x", "run_when": "ended"}, "nodes": [%s]}`, strings.Join(nodes, ", ")))
	for _, id := range ids {
		c.ids = append(c.ids, id)
	}
}

func (c *chance) insertBatch() {
	id := get[int64](c.world, `SELECT dispatcherd.open_batch('{"type": "x"}', 'ended', parent => nullif($1, 0))`,
		c.target(`kind = 'batch' AND sealed_at IS NULL AND cancelled_by IS NULL`))
	c.ids = append(append(c.ids, id), c.members(id, 1+c.IntN(4))...)
}

// finish ends some of the running jobs.
func (c *chance) finish() {
	rows, err := c.db.Query(c.t.Context(), `SELECT id, attempt FROM dispatcherd.jobs_live WHERE id = ANY ($1) ORDER BY id`, c.some("running"))
	require.NoError(c.t, err)
	won, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (w contract.Won, err error) { return w, row.Scan(&w.ID, &w.Attempt) })
	require.NoError(c.t, err)
	if len(won) > 0 {
		c.world.finish(won, []contract.Outcome{contract.Succeeded, contract.Succeeded, contract.FailedFinal, contract.Cancelled}[c.IntN(4)], "")
	}
}

func (c *chance) spawn() {
	if id := c.some("running"); len(id) > 0 {
		_, _ = c.children(id[0], get[int32](c.world, `SELECT attempt FROM dispatcherd.jobs_live WHERE id = $1`, id[0]), 2, false)
	}
}

// steps does some steps with low limits, perhaps while another transaction has locked rows.
func (c *chance) steps() {
	var tx pgx.Tx
	if c.IntN(3) == 0 {
		tx = c.begin()
		_, err := tx.Exec(c.t.Context(), []string{
			`SELECT FROM dispatcherd.jobs_live WHERE id % 2 = 0 ORDER BY id FOR UPDATE`,
			`SELECT FROM dispatcherd.jobs_waiting WHERE id % 2 = 0 ORDER BY id FOR UPDATE`,
			`SELECT FROM dispatcherd.batches WHERE id % 2 = 0 ORDER BY id FOR KEY SHARE`,
			`SELECT FROM dispatcherd.batches WHERE id % 2 = 0 ORDER BY id FOR NO KEY UPDATE`,
		}[c.IntN(4)])
		require.NoError(c.t, err)
	}
	due, err := c.Due(c.t.Context(), 0)
	require.NoError(c.t, err)
	for _, d := range due[:c.IntN(len(due)+1)] {
		n := []int{1, 2, 5, 1000}[c.IntN(4)]
		_, err := c.Step(c.t.Context(), d.ID, flow.Limits{Items: n, Bytes: 1000 * n, Time: flow.Full.Time})
		require.NoError(c.t, err)
	}
	if tx != nil {
		require.NoError(c.t, tx.Rollback(c.t.Context()))
	}
}

func (c *chance) operate() {
	live := `SELECT FROM dispatcherd.jobs_live j WHERE j.id = b.id`
	switch id := c.target(`kind <> 'children'`); c.IntN(6) {
	case 0:
		if id = c.target(`ended_at IS NULL`); id != 0 {
			c.cancelTree(id)
		}
	case 1:
		if id = c.target(`kind <> 'children' AND NOT EXISTS (` + live + `)`); id != 0 {
			_, err := c.askRetry(id)
			refused, _ := errors.AsType[*joins.RefusedError](err)
			// its outer one is cancelled, or all that failed is left out
			if refused == nil || refused.Rule != "batch_is_open" && refused.Rule != "nothing_runs" {
				require.NoError(c.t, err)
			}
		}
	case 2:
		require.NoError(c.t, joins.Joins{DB: c.db}.Repair(c.t.Context(), dispatcherd.JobID(id)))
	case 3:
		if id = c.target(`kind = 'batch' AND sealed_at IS NULL AND cancelled_by IS NULL`); id != 0 {
			c.seal(id)
		}
	case 4:
		c.retry(get[[]int64](c.world, `SELECT ARRAY (SELECT id::bigint FROM dispatcherd.jobs j WHERE status IN ('failed', 'cancelled')
			AND NOT EXISTS (SELECT FROM dispatcherd.batches b WHERE b.id = j.parent AND b.cancelled_by IS NOT NULL) ORDER BY random() LIMIT 2)`)...)
	case 5:
		for _, job := range c.some("pending") {
			c.exec(`SELECT dispatcherd.end_idle(ARRAY[$1::bigint], 'cancelled', 'me', NULL)`, job)
		}
	}
}

// drain seals all batches, and runs all jobs until none is left.
func (c *chance) drain() {
	for rounds := 0; ; rounds++ {
		require.Less(c.t, rounds, 1000)
		c.countEnds()
		c.exec(`SELECT dispatcherd.seal_batch(id) FROM dispatcherd.batches WHERE sealed_at IS NULL AND cancelled_by IS NULL AND kind = 'batch'`)
		if ids := c.some("pending"); len(ids) > 0 {
			c.claim(ids...)
		}
		c.finish()
		if get[int](c.world, `SELECT (SELECT count(*) FROM dispatcherd.ends) + (SELECT count(*) FROM dispatcherd.jobs_live)`) == 0 {
			return
		}
	}
}

// Whatever happens, each job ends, each batch and flow ends, and its counters are those of its members.
func TestAllTargetsEndWithRightCounters(t *testing.T) {
	for seed := range uint64(6) {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			c := &chance{world: newWorld(t), Rand: rand.New(rand.NewPCG(seed, 1))}
			for range 100 {
				switch c.IntN(8) {
				case 0:
					c.insertFlow()
				case 1:
					c.insertBatch()
				case 2:
					if ids := c.some("pending"); len(ids) > 0 {
						c.claim(ids...)
					}
				case 3:
					c.finish()
				case 4:
					c.spawn()
				case 5:
					c.operate()
				default:
					c.steps()
				}
			}
			c.drain()
			require.Zero(t, c.repair())
			require.Zero(t, get[int](c.world, `SELECT count(*) FROM dispatcherd.jobs_waiting`))
			// a member that is retried while its batch is cancelled is none any more, but stays counted
			require.Empty(t, get[string](c.world, `SELECT coalesce(string_agg(format('%s %s: %s %s', b.kind, b.id, b, m), '; '), '')
				FROM dispatcherd.batches b CROSS JOIN LATERAL (SELECT count(*) FILTER (WHERE j.status = 'done') AS done,
					count(*) FILTER (WHERE j.status = 'failed') AS failed, count(*) FILTER (WHERE j.status = 'cancelled') AS cancelled
					FROM dispatcherd.jobs j WHERE j.parent = b.id) m
				WHERE b.ended_at IS NULL OR b.kind <> 'children' AND (b.open <> 0 OR least(b.done - m.done, b.failed - m.failed,
					b.cancelled - m.cancelled) < 0)`))
		})
	}
}
