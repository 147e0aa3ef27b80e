package flowstore

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/internal/contract"
)

// A node runs after its dependencies. The callback runs after all nodes.
func TestNodesRunAfterTheirDependencies(t *testing.T) {
	w := newWorld(t)
	id, n := w.flow(
		`{"name": "f", "callback": {"type": "end", "run_when": "ended"}, "nodes": [
		{"name": "a", "type": "x"}, {"name": "b", "type": "x", "after": ["a"]},
		{"name": "c", "type": "x", "after": ["a"]}, {"name": "d", "type": "x", "after": ["b", "c"]}, 
		{"name": "alarm", "type": "x", "after": ["d"], "run_when": "failed"}]}`,
	)
	for _, step := range []struct{ run, next string }{{"a", "b"}, {"b", ""}, {"c", "d"}} {
		require.Equal(t, "pending", w.status(n[step.run]))
		w.end(contract.Succeeded, n[step.run])
		w.countEnds()
		if step.next != "" {
			require.Equal(t, "pending", w.status(n[step.next]))
		}
	}
	require.Equal(t, "waiting", w.status(n["alarm"]))
	w.end(contract.FailedFinal, n["d"])
	w.countEnds()
	require.Equal(t, "pending", w.status(n["alarm"]))
	require.Equal(t, "waiting", w.status(id))
	w.end(contract.Succeeded, n["alarm"])
	w.countEnds()
	require.Equal(t, "pending", w.status(id))
	require.Equal(t,
		"5 4 1",
		get[string](
			w,
			`SELECT concat_ws(' ', payload -> 'batch' ->> 'total', payload -> 'batch' ->> 'done', payload -> 'batch' ->> 'failed')
				FROM dispatcherd.jobs WHERE id = $1`,
			id,
		),
	)
}

// Attack 6: a flow contains a cycle, a reference to itself or an unknown name or id, or is invalid in another
// way. The whole flow is refused, and the error names the node and the rule.
func TestInvalidFlowsAreRefused(t *testing.T) {
	w := newWorld(t)
	node := func(more string) string {
		return `{"nodes": [{"name": "a", "type": "x"}, {"name": "b", "type": "x"` + more + `}]}`
	}
	names := []string{`"x"`}
	for i := range 100 {
		names = append(names, strconv.Quote(strconv.Itoa(i)))
	}
	deps := strings.Join(names, ", ")
	for document, rule := range map[string][2]string{
		`{"nodes": [{"name": "a", "type": "x", "after": ["b"]}, {"name": "b", "type": "x", "after": ["a"]}]}`: {
			"node_depends_on_earlier_nodes", "a",
		},
		node(`, "after": ["b"]`):                                              {"node_depends_on_earlier_nodes", "b"},
		node(`, "after": ["c"]`):                                              {"node_depends_on_known_nodes", "b"},
		node(`, "after": [4711]`):                                             {"node_depends_on_existing_jobs", "b"},
		node(`, "after": [1.5]`):                                              {"node_depends_on_known_nodes", "b"},
		node(`, "after": [true]`):                                             {"node_depends_on_known_nodes", "b"},
		node(`, "after": "a"`):                                                {"node_depends_on_known_nodes", "b"},
		node(`, "afer": ["a"]`):                                               {"node_has_known_members", "b"},
		node(`, "unique_key": "k"`):                                           {"node_has_known_members", "b"},
		node(`, "run_when": "always"`):                                        {"run_when_is_done_ended_or_failed", "b"},
		node(`, "run_when": "failed"`):                                        {"failed_needs_dependencies", "b"},
		node(`, "takes_results": 1`):                                          {"node_has_known_members", "b"},
		node(`, "after": [` + deps + `], "takes_results": true`):              {"takes_at_most_100_results", "b"},
		node(`, "takes_results": true, "payload": [1]`):                       {"payload_is_an_object", "b"},
		node(`, "priority": 11`):                                              {"priority_is_0_to_10", "b"},
		node(`, "priority": "high"`):                                          {"node_has_known_members", "b"},
		node(`, "run_at": "soon"`):                                            {"node_is_a_job", "b"},
		node(`, "keys": "a*b"`):                                               {"keys_are_1_to_4_words", "b"},
		`{"nodes": [{"name": "a", "type": "x"}, {"name": "a", "type": "x"}]}`: {"node_name_is_unique", "a"},
		`{"nodes": [{"name": "a"}]}`:                                          {"node_has_known_members", "a"},
		`{"nodes": [{"type": "x"}]}`:                                          {"node_name_is_1_to_128_bytes", "1"},
		`{"nodes": [7]}`:                                                      {"node_has_known_members", "1"},
		`{"nodes": []}`:                                                       {"flow_has_1_to_10000_nodes", ""},
		`{"nodes": {}}`:                                                       {"flow_has_1_to_10000_nodes", ""},
		`{"nodes": [{"name": "a", "type": "x"}], "title": 1}`:                 {"flow_has_known_members", ""},
		`[]`: {"flow_has_known_members", ""},
		`{"nodes": [{"name": "a", "type": "x"}], "callback": {"typ": "x"}}`:                     {"flow_has_known_members", ""},
		`{"nodes": [{"name": "a", "type": "x"}], "callback": {"type": "x", "run_when": "x"}}`:   {"run_when_is_done_ended_or_failed", ""},
		`{"nodes": [{"name": "a", "type": "x"}], "callback": {"type": "x", "priority": 11}}`:    {"callback_is_a_job", ""},
		`{"nodes": [{"name": "a", "type": "x"}], "callback": {"type": "x", "payload": "text"}}`: {"payload_is_an_object", ""},
	} {
		e := w.refused(`SELECT dispatcherd.insert_flow($1)`, document)
		require.Equal(t, rule[0], e.ConstraintName, "%s: %s", document, e.Message)
		require.Equal(t, rule[1], e.ColumnName, document)
		if rule[1] != "" {
			require.Contains(t, e.Message, `node "`+rule[1]+`"`)
		}
	}
	nodes := make([]string, 10_001)
	for i := range nodes {
		nodes[i] = fmt.Sprintf(`{"name": "n%d", "type": "x"}`, i)
	}
	many := strings.Join(nodes, ", ")
	e := w.refused(`SELECT dispatcherd.insert_flow($1)`, `{"nodes": [`+many+`]}`)
	require.Equal(t, "flow_has_1_to_10000_nodes", e.ConstraintName)
	require.Contains(t, e.Message, "10001")
	for _, table := range []string{"jobs", "batches", "nodes", "edges"} {
		require.Zero(t, get[int](w, `SELECT count(*) FROM dispatcherd.`+table), table)
	}
}

// Attack 9: a dependency has ended already. If it is done, it is met; if it has failed, run_when decides; if
// retention has deleted it, the flow is refused.
func TestDependencyMayHaveEndedAlready(t *testing.T) {
	w := newWorld(t)
	var ids []int64
	for _, o := range []contract.Outcome{contract.Succeeded, contract.FailedFinal} {
		id := get[int64](w, `INSERT INTO dispatcherd.jobs (type) VALUES ('x') RETURNING id`)
		w.end(o, id)
		ids = append(ids, id)
	}
	pending := get[int64](w, `INSERT INTO dispatcherd.jobs (type) VALUES ('x') RETURNING id`)
	running := get[int64](w, `INSERT INTO dispatcherd.jobs (type) VALUES ('x') RETURNING id`)
	won := w.claim(running)
	_, n := w.flow(fmt.Sprintf(`{"nodes": [{"name": "met", "type": "x", "after": [%d]}, {"name": "unmet", "type": "x", "after": [%d]},
		{"name": "alarm", "type": "x", "after": [%[2]d], "run_when": "failed"}, 
		{"name": "last", "type": "x", "after": ["met", %d, %d]}]}`, ids[0], ids[1], pending, running))
	w.countEnds()
	require.Equal(t, "pending", w.status(n["met"]))
	require.Equal(t, "cancelled", w.status(n["unmet"]))
	require.Equal(t, fmt.Sprintf("dependency %d failed", ids[1]), w.reason(n["unmet"]))
	require.Equal(t, "pending", w.status(n["alarm"]))
	w.finish(won, contract.Succeeded, "") // it is watched since it was claimed
	w.end(contract.Succeeded, pending)
	w.countEnds()
	require.Equal(t, "waiting", w.status(n["last"]))
	w.end(contract.Succeeded, n["met"])
	w.countEnds()
	require.Equal(t, "pending", w.status(n["last"]))

	w.exec(`DELETE FROM dispatcherd.jobs WHERE id = $1`, ids[0])
	e := w.refused(`SELECT dispatcherd.insert_flow($1)`, fmt.Sprintf(`{"nodes": [{"name": "a", "type": "x", "after": [%d]}]}`, ids[0]))
	require.Equal(t, "node_depends_on_existing_jobs", e.ConstraintName)
}

// The end of a dependency is recorded and not counted yet when a further flow is inserted. It is counted once.
func TestRecordedEndOfADependencyIsCountedOnce(t *testing.T) {
	w := newWorld(t)
	_, first := w.flow(`{"nodes": [{"name": "x", "type": "x"}, {"name": "next", "type": "x", "after": ["x"]}]}`)
	w.end(contract.Succeeded, first["x"])
	_, second := w.flow(fmt.Sprintf(`{"nodes": [{"name": "y", "type": "x"}, {"name": "n", "type": "x", "after": ["y", %d]}]}`, first["x"]))
	w.countEnds()
	require.Equal(t, "pending", w.status(first["next"]))
	require.Equal(t, "waiting", w.status(second["n"]), "y has not ended")
	w.end(contract.Succeeded, second["y"])
	w.countEnds()
	require.Equal(t, "pending", w.status(second["n"]))
}

// A producer that keeps its transaction open locks no job on which its flow depends.
func TestInsertOfAFlowLocksNoOtherJob(t *testing.T) {
	w := newWorld(t)
	id := get[int64](w, `INSERT INTO dispatcherd.jobs (type) VALUES ('x') RETURNING id`)
	tx := w.begin()
	_, err := tx.Exec(t.Context(), `SELECT dispatcherd.insert_flow($1)`,
		fmt.Sprintf(`{"nodes": [{"name": "a", "type": "x", "after": [%d]}]}`, id))
	require.NoError(t, err)
	w.end(contract.Succeeded, id)
	require.NoError(t, tx.Commit(t.Context()))
	w.countEnds()
	require.Equal(t, "pending", get[string](w, `SELECT j.status::text FROM dispatcherd.jobs j JOIN dispatcherd.nodes n ON n.id = j.id`))
}

// Attack 13: the first job of a chain of 10,000 fails. The others are cancelled, step by step.
func TestFailureCancelsAChain(t *testing.T) {
	w := newWorld(t)
	const length = 10_000
	type node struct {
		Name  string   `json:"name"`
		Type  string   `json:"type"`
		After []string `json:"after,omitempty"`
	}
	chain := []node{{Name: "n0", Type: "x"}}
	for i := 1; i < length; i++ {
		chain = append(chain, node{fmt.Sprint("n", i), "x", []string{fmt.Sprint("n", i-1)}})
	}
	document, err := json.Marshal(map[string]any{"nodes": chain, "callback": map[string]any{"type": "end", "run_when": "failed"}})
	require.NoError(t, err)
	id, n := w.flow(string(document))
	w.end(contract.FailedFinal, n["n0"])
	w.countEnds()
	require.Equal(t, length-1, get[int](w, `SELECT count(*) FROM dispatcherd.jobs WHERE status = 'cancelled' AND cancelled_by = 'flow'`))
	require.Equal(t, fmt.Sprintf("dependency %d was cancelled", n["n9998"]), w.reason(n["n9999"]))
	require.Equal(t, "pending", w.status(id))
	b := w.batch(id)
	require.Equal(t, []int{0, 1, length - 1}, []int{b.Done, b.Failed, b.Cancelled})
}

// Attack 14: one side of a diamond fails. The joined node is cancelled once.
func TestDiamondIsCancelledOnce(t *testing.T) {
	w := newWorld(t)
	id, n := w.flow(
		`{"nodes": [{"name": "a", "type": "x"}, {"name": "b", "type": "x", "after": ["a"]}, {"name": "c", "type": "x", "after": ["a"]},
		{"name": "d", "type": "x", "after": ["b", "c"]}]}`,
	)
	w.end(contract.Succeeded, n["a"])
	w.countEnds()
	w.end(contract.FailedFinal, n["b"])
	w.countEnds()
	require.Equal(t, "waiting", w.status(n["d"]), "it waits for both sides")
	w.end(contract.FailedFinal, n["c"])
	w.countEnds()
	require.Equal(t, "cancelled", w.status(n["d"]))
	require.Equal(t, 1, get[int](w, `SELECT count(*) FROM dispatcherd.jobs WHERE id = $1`, n["d"]))
	require.Equal(t, 1, get[int](w, `SELECT jsonb_array_length(errors) FROM dispatcherd.jobs WHERE id = $1`, n["d"]))
	require.Equal(t, 1, w.batch(id).Cancelled)
	require.True(t, w.batch(id).Ended)
}

// A node gets the results of its dependencies by name.
func TestResultsArePassedOn(t *testing.T) {
	w := newWorld(t)
	outside := get[int64](w, `INSERT INTO dispatcherd.jobs (type) VALUES ('x') RETURNING id`)
	w.finish(w.claim(outside), contract.Succeeded, `[7]`)
	id, n := w.flow(
		fmt.Sprintf(`{"nodes": [{"name": "a", "type": "x"}, {"name": "b", "type": "x"}, {"name": "c", "type": "x"}, {"name": "d", "type": "x"},
		{"name": "sum", "type": "x", "payload": {"n": 1}, "after": ["a", "b", "c", "d", %d], "run_when": "ended",
			"takes_results": true}]}`, outside),
	)
	w.finish(w.claim(n["a"]), contract.Succeeded, `{"rows": 3}`)
	w.finish(w.claim(n["b"]), contract.Succeeded, "")
	w.end(contract.FailedFinal, n["c"])
	w.finish(w.claim(n["d"]), contract.Succeeded, `1`)
	w.exec(`DELETE FROM dispatcherd.jobs WHERE id = $1`, n["d"])
	w.countEnds()
	require.Equal(t, "pending", w.status(n["sum"]))
	require.JSONEq(t,
		fmt.Sprintf(
			`{"n": 1, "inputs": {"a": {"rows": 3}, "b": null, "c": null, "d": null, "%d": [7]}, "missing": ["d"], "unsuccessful": {"c": "failed"}}`,
			outside,
		),
		get[string](w, `SELECT payload::text FROM dispatcherd.jobs WHERE id = $1`, n["sum"]),
	)
	w.end(contract.Succeeded, n["sum"])
	w.countEnds()
	require.True(t, w.batch(id).Ended)
}

// Attack 16: a dependant takes a result of 2 MB. It fails with the reason, and so do results that jsonb cannot store.
func TestDependantOfALargeResultFails(t *testing.T) {
	w := newWorld(t)
	for result, why := range map[string]string{
		`repeat('r', 2000000)`: "cannot be passed on: they have 2000002 bytes, at most 1000000",
		`E'\\u0000'`:           "cannot be released: unsupported Unicode escape sequence",
	} {
		_, n := w.flow(
			`{"nodes": [{"name": "a", "type": "x"}, {"name": "b", "type": "x", "after": ["a"], "takes_results": true},
				{"name": "c", "type": "x", "after": ["a"]},
			{"name": "d", "type": "x", "after": ["b"], "run_when": "failed"}]}`,
		)
		w.end(contract.Succeeded, n["a"])
		w.exec(`UPDATE dispatcherd.jobs SET result = ('"' || `+result+` || '"')::json WHERE id = $1`, n["a"])
		w.exec(`UPDATE dispatcherd.ends SET sizes = ARRAY[octet_length((SELECT result::text FROM dispatcherd.jobs WHERE id = $1))]
			WHERE jobs[1] = $1`, n["a"])
		w.countEnds()
		require.Equal(t, "failed", w.status(n["b"]))
		require.Contains(t, w.reason(n["b"]), why)
		require.Equal(t, "pending", w.status(n["c"]), "others are not affected")
		require.Equal(t, "pending", w.status(n["d"]))
	}
	id, n := w.flow(`{"nodes": [{"name": "a", "type": "x"}, {"name": "b", "type": "x", "after": ["a"], "takes_results": true}]}`)
	w.exec(`UPDATE dispatcherd.jobs SET payload = jsonb_build_object('p', repeat('p', 900000)) WHERE id = $1`, n["b"])
	w.end(contract.Succeeded, n["a"])
	w.exec(`UPDATE dispatcherd.jobs SET result = ('"' || repeat('r', 900000) || '"')::json WHERE id = $1`, n["a"])
	w.countEnds()
	require.Equal(t, "failed", w.status(n["b"]), "the payload and the inputs together are too large")
	require.True(t, w.batch(id).Ended)
}

// A job with keys waits for its dependencies first, and then for its permits.
func TestNodeWithKeysIsReleasedToTheController(t *testing.T) {
	w := newWorld(t)
	_, n := w.flow(`{"nodes": [{"name": "a", "type": "x"}, {"name": "b", "type": "x", "after": ["a"], "keys": "tenant:1"}]}`)
	w.end(contract.Succeeded, n["a"])
	w.countEnds()
	require.Equal(t, "pending", w.status(n["b"]))
	require.Equal(t, "tenant:1", get[string](w, `SELECT keys FROM dispatcherd.jobs_live WHERE id = $1 AND fence IS NULL`, n["b"]))
}

// The controller admits jobs with keys. It learns of a released one at once.
func TestReleasedJobWithKeysNotifiesTheController(t *testing.T) {
	w := newWorld(t)
	_, nodes := w.flow(`{"nodes": [{"name": "a", "type": "x"}, {"name": "b", "type": "x", "after": ["a"], "keys": "k"}]}`)
	w.end(contract.Succeeded, nodes["a"])
	w.exec(`UPDATE dispatcherd.dispatchers SET armed = true`)
	conn, err := pgx.Connect(t.Context(), w.dsn)
	require.NoError(t, err)
	defer conn.Close(context.Background())
	_, err = conn.Exec(t.Context(), `LISTEN dispatcherd`)
	require.NoError(t, err)
	w.countEnds()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	note, err := conn.WaitForNotification(ctx)
	require.NoError(t, err)
	require.Equal(t, "keys", note.Payload)
}

// A producer may not read results. So its flow gets results of its own nodes only.
func TestFlowOfAProducerTakesNoResultsOfOtherJobs(t *testing.T) {
	w := newWorld(t)
	outside := w.members(w.open("ended"), 1)[0]
	conn := w.begin().Conn()
	_, err := conn.Exec(t.Context(), `CREATE ROLE flow_producer_of_results IN ROLE dispatcherd_producer`)
	require.NoError(t, err)
	_, err = conn.Exec(t.Context(), `SET SESSION AUTHORIZATION flow_producer_of_results`)
	require.NoError(t, err)
	insert := func(options string) error {
		_, err := conn.Exec(t.Context(), `SAVEPOINT s`)
		require.NoError(t, err)
		_, err = conn.Exec(t.Context(), `SELECT dispatcherd.insert_flow($1)`,
			fmt.Sprintf(`{"nodes": [{"name": "a", "type": "x"}, {"name": "b", "type": "x", "after": %s}]}`, options))
		_, back := conn.Exec(t.Context(), `ROLLBACK TO s`)
		require.NoError(t, back)
		return err
	}
	require.NoError(t, insert(`["a"], "takes_results": true`))
	require.NoError(t, insert(fmt.Sprintf(`["a", %d]`, outside)))
	var e *pgconn.PgError
	require.ErrorAs(t, insert(fmt.Sprintf(`["a", %d], "takes_results": true`, outside)), &e)
	require.Equal(t, "results_of_other_jobs_may_be_read", e.ConstraintName)
}

// Somebody has deleted the row of a node. The ends of its dependencies are counted, and steps come to an end.
func TestDeletedNodeDoesNotStopTheCountOfEnds(t *testing.T) {
	w := newWorld(t)
	_, ids := w.flow(`{"nodes": [{"name": "a", "type": "x"}, {"name": "b", "type": "x", "after": ["a"]}]}`)
	w.exec(`DELETE FROM dispatcherd.nodes WHERE id = $1`, ids["b"])
	w.end(contract.Succeeded, ids["a"])
	w.countEnds()
	require.Zero(t, get[int](w, `SELECT count(*) FROM dispatcherd.ends`))
}
