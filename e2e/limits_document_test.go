package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// loadSQL is the highest cost of the jobs of key $1 that ran at once on one dispatcher ($2) or in the
// cluster, by the times in the table. A job that runs alone counts as a million.
const loadSQL = `
WITH run AS (
	SELECT started_at, coalesce(finished_at, 'infinity') AS finished_at, CASE WHEN $2 THEN dispatcher END AS at,
		CASE split_part(word, '*', 2) WHEN '' THEN 1 WHEN 'all' THEN 1000000 ELSE split_part(word, '*', 2)::int END AS cost
	FROM dispatcherd.jobs, unnest(string_to_array(keys, ' ')) word
	WHERE split_part(word, '*', 1) = $1 AND started_at IS NOT NULL AND status <> 'pending'
), change AS (
	SELECT at, started_at AS moment, cost FROM run UNION ALL SELECT at, finished_at, -cost FROM run
)
SELECT coalesce(max(load), 0) FROM (SELECT sum(cost) OVER (PARTITION BY at ORDER BY moment, cost) AS load FROM change) c`

// recipe returns the SQL of a recipe in docs/how-to/limits.md, one text for each block.
func recipe(t *testing.T, title string) (blocks []string) {
	t.Helper()
	return recipeIn(t, "limits.md", title)
}

// recipeIn returns the SQL of a recipe in a document.
func recipeIn(t *testing.T, document, title string) (blocks []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "docs", "how-to", document))
	require.NoError(t, err)
	_, section, found := strings.Cut(string(text), "\n### "+title+"\n")
	require.True(t, found, "docs/how-to/%s has no recipe %q", document, title)
	section, _, _ = strings.Cut(section, "\n### ")
	for i, part := range strings.Split(section, "```") {
		if i%2 == 1 {
			blocks = append(blocks, strings.TrimPrefix(part, "sql\n"))
		}
	}
	return blocks
}

// recipes is a world for recipes: each job takes 300 ms, and workers of two dispatchers support the types.
func recipes(t *testing.T, types ...string) *world {
	t.Helper()
	w := newWorld(t)
	w.exec(`ALTER TABLE dispatcherd.jobs ALTER COLUMN payload SET DEFAULT '{"do": "nap", "nap": "300ms"}'`)
	for _, name := range []string{"a", "b"} {
		c := w.config(name)
		w.start(c)
		w.worker(name, c.WorkerSocket, scriptSlots{N: 10, Types: types})
	}
	w.awaitSlots(20, types[0])
	return w
}

// awaitSlots waits until the controller can know of n slots of a type.
func (w *world) awaitSlots(n int, typ string) {
	w.t.Helper()
	eventually(w.t, func() bool {
		return w.number(`SELECT coalesce(sum((capacity ->> $1)::int), 0) FROM dispatcherd.dispatchers`, typ) == n
	}, func() string { return "the table states the slots" })
}

func (w *world) load(key string, each bool) int {
	w.t.Helper()
	return w.number(loadSQL, key, each)
}

func TestRecipeOneJobPerTenant(t *testing.T) {
	w := recipes(t, "import")
	for range 4 {
		w.exec(recipe(t, "One job per tenant")[0])
	}
	w.awaitDone(12)
	require.Equal(t, 1, w.load("tenant:41", false))
	require.Equal(t, 1, w.load("tenant:42", false))
	require.Positive(t,
		w.number(
			`SELECT count(*) FROM dispatcherd.jobs a
				JOIN dispatcherd.jobs b ON a.keys < b.keys AND a.started_at < b.finished_at AND b.started_at < a.finished_at`,
		),
		"jobs of different tenants run at once",
	)
}

func TestRecipeThreePerSecond(t *testing.T) {
	w := recipes(t, "charge")
	w.exec(recipe(t, "Three per second to an API")[0])
	w.awaitDone(10)
	require.Equal(t, 3, w.number(`SELECT max((SELECT count(*) FROM dispatcherd.jobs o
		WHERE o.started_at >= j.started_at AND o.started_at < j.started_at + interval '1 second')) FROM dispatcherd.jobs j`))
}

func TestRecipeWeightedPool(t *testing.T) {
	w := recipes(t, "train", "embed")
	w.exec(recipe(t, "A weighted pool of GPU memory")[0])
	w.awaitDone(10)
	require.Equal(t, 24, w.load("gpu-gb", true), "a host uses its memory")
	require.Greater(t, w.load("gpu-gb", false), 24, "each host has memory of its own")
}

func TestRecipeReadersAndOneWriter(t *testing.T) {
	w := recipes(t, "read", "rebuild")
	w.exec(recipe(t, "Readers and one writer")[0])
	w.awaitDone(4)
	require.Equal(t, 1_000_000, w.load("cache", false), "the writer runs alone")
	w.exec(`DELETE FROM dispatcherd.jobs_done WHERE type = 'rebuild'`)
	require.Equal(t, 2, w.load("cache", false), "readers run together, and the last one waits for the writer")
}

func TestRecipePausedCustomer(t *testing.T) {
	w := recipes(t, "mail")
	blocks := recipe(t, "A paused customer")
	w.exec(blocks[0])
	w.awaitDone(20)
	require.Equal(t, 5, w.load("customer:8", false))
	require.Equal(t, 20, w.number(`SELECT count(*) FROM dispatcherd.jobs WHERE keys = 'customer:7' AND started_at IS NULL`))
	w.exec(blocks[1])
	w.awaitDone(40)
	require.Equal(t, 5, w.load("customer:7", false))
}
