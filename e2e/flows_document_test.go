package e2e

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
)

// gset is a statement of psql that stores its result as the variable batch.
var gset = regexp.MustCompile(`(?m)^(SELECT .*) \\gset$`)

// flowRecipe executes a recipe of docs/how-to/flows.md and then a statement about its jobs. Then it starts a worker for the types.
func flowRecipe(t *testing.T, title, edit string, types ...string) *world {
	t.Helper()
	w := newWorld(t)
	for _, block := range recipeIn(t, "flows.md", title) {
		if open := gset.FindStringSubmatch(block); open != nil {
			block = strings.ReplaceAll(strings.Replace(block, open[0], "", 1), ":batch", strconv.Itoa(w.number(open[1])))
		}
		w.exec(block)
	}
	if edit != "" {
		w.exec(edit)
	}
	c := w.config("a")
	w.start(c)
	w.worker("a", c.WorkerSocket, scriptSlots{N: 4, Types: types})
	return w
}

// idOf returns the id of the only job of a type.
func (w *world) idOf(typ string) dispatcherd.JobID {
	w.t.Helper()
	return dispatcherd.JobID(w.number(`SELECT id FROM dispatcherd.jobs WHERE type = $1`, typ))
}

func TestRecipeCallbackAfterAllJobs(t *testing.T) {
	w := flowRecipe(t, "A callback after all jobs", "", "page", "report")
	report := w.await(w.idOf("report"), dispatcherd.Done)
	require.JSONEq(t,
		fmt.Sprintf(`{"batch": {"id": %d, "total": 100, "done": 100, "failed": 0, "cancelled": 0}}`, report.ID),
		string(report.Payload))
	require.Zero(t,
		w.number(`SELECT count(*) FROM dispatcherd.jobs WHERE type = 'page' AND finished_at > $1`, *report.StartedAt),
		"it runs after the last one")
	require.EqualValues(t, 1, report.Attempt)
}

func TestRecipeChain(t *testing.T) {
	w := flowRecipe(t, "A chain", "", "fetch", "parse", "store")
	w.await(w.idOf("store"), dispatcherd.Done)
	require.Equal(t, 2, w.number(`SELECT count(*) FROM dispatcherd.jobs a JOIN dispatcherd.jobs b ON a.finished_at <= b.started_at
		WHERE (a.type, b.type) IN (('fetch', 'parse'), ('parse', 'store'))`))
}

func TestRecipeTwoBranchesWhoseResultsMeet(t *testing.T) {
	w := flowRecipe(t,
		"Two branches whose results meet",
		`UPDATE dispatcherd.jobs j SET payload = jsonb_build_object('result', n.name) FROM dispatcherd.nodes n
			WHERE n.id = j.id AND NOT n.takes_results`,
		"load",
		"half",
		"sum",
	)
	sum := w.await(w.idOf("sum"), dispatcherd.Done)
	require.JSONEq(t, `{"inputs": {"left": "left", "right": "right"}}`, string(sum.Payload))
}

func TestRecipeHandlerForFailures(t *testing.T) {
	w := flowRecipe(t, "A handler for failures",
		`UPDATE dispatcherd.jobs SET payload = '{"do": "permanent", "error": "no money"}' WHERE type = 'charge'`, "charge",
		"mail", "alarm")
	w.await(w.idOf("alarm"), dispatcherd.Done)
	receipt := w.await(w.idOf("mail"), dispatcherd.Cancelled)
	require.Contains(t, string(receipt.Errors), fmt.Sprintf("dependency %d failed", w.idOf("charge")))
}

func TestRecipeOneJobPerKeyAtATime(t *testing.T) {
	w := flowRecipe(t, "One job per key at a time", "", "sync")
	w.await(w.idOf("sync"), dispatcherd.Done)
	w.exec(recipeIn(t, "flows.md", "One job per key at a time")[0])
	require.Equal(t, 2, w.number(`SELECT count(*) FROM dispatcherd.jobs`), "the key is free after the end of its job")
}
