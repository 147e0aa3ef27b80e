package e2e

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/client"
	"github.com/dispatcherd/dispatcherd/internal/exit"
)

// problemType returns the type of the problem that a dispatcher reports.
func problemType(t *testing.T, err error) string {
	t.Helper()
	var p *client.Problem
	require.ErrorAs(t, err, &p)
	return p.Type
}

// A caller manages schedules over the API. A user who may not use their type cannot.
func TestSchedulesOverTheAPI(t *testing.T) {
	w, h := callersWorld(t, fmt.Sprintf("payroll=%d", os.Getuid()))
	_, otherClient := w.callerAs(h, stranger)
	own, err := client.New(client.Options{Socket: h.cfg.APISocket})
	require.NoError(t, err)
	defer own.Close()
	mine, other, ctx := own.Schedules(), otherClient.Schedules(), t.Context()

	s := client.NewSchedule()
	s.Name, s.Kind, s.Spec, s.TimeZone, s.Type, s.Payload = "nightly", "cron", "30 2 * * *", "Europe/Berlin", "payroll", []byte(`{"month": 3}`)
	created, err := mine.Set(ctx, s)
	require.NoError(t, err)
	require.True(t, created)
	s, err = mine.Get(ctx, "nightly")
	require.NoError(t, err)
	require.JSONEq(t, `{"month": 3}`, string(s.Payload))
	s.Priority = 4
	created, err = mine.Set(ctx, s)
	require.NoError(t, err)
	require.False(t, created)

	made, err := mine.Run(ctx, "nightly", "1", false)
	require.NoError(t, err)
	require.Equal(t, "run", made.Outcome)
	again, err := mine.Run(ctx, "nightly", "1", false)
	require.NoError(t, err)
	require.Equal(t, client.MadeTick{Outcome: "exists", Job: made.Job, Earlier: "run"}, again)
	skipped, err := mine.Run(ctx, "nightly", "2", false)
	require.NoError(t, err)
	require.Equal(t, "skipped", skipped.Outcome, "an outcome, not an error")
	from := time.Now().AddDate(0, 0, -3)
	counts, err := mine.Backfill(ctx, "nightly", from, from.AddDate(0, 0, 2), "")
	require.NoError(t, err)
	require.Equal(t, map[string]int{"queued": 2}, counts)
	next, err := mine.Next(ctx, "nightly", 3)
	require.NoError(t, err)
	require.Len(t, next, 3)
	require.Equal(t, 30, next[0].Local.Minute())
	w.exec(
		`INSERT INTO dispatcherd.ticks (schedule_id, occasion, outcome, planned_at) SELECT id, 'ahead', 'skipped', $1
			FROM dispatcherd.schedules WHERE name = 'nightly'`,
		next[1].At,
	)
	ahead, err := mine.Next(ctx, "nightly", 1)
	require.NoError(t, err)
	require.Equal(t, next[2], ahead[0], "after the high-water mark")
	w.exec(`DELETE FROM dispatcherd.ticks WHERE occasion = 'ahead'`)
	var all []string
	for q, more := (client.Query{Limit: 1}), true; more; {
		page, err := mine.Ticks(ctx, "nightly", q)
		require.NoError(t, err)
		require.Len(t, page.Items, 1)
		all = append(all, page.Items[0].Outcome)
		q.Cursor, more = page.Next, page.Next != ""
	}
	require.ElementsMatch(t, []string{"run", "skipped", "queued", "queued"}, all)

	require.NoError(t, mine.Pause(ctx, "nightly"))
	_, err = mine.Run(ctx, "nightly", "3", false)
	require.Equal(t, client.TypeConflict, problemType(t, err))
	require.NoError(t, mine.Resume(ctx, "nightly"))
	stale, err := mine.Get(ctx, "nightly")
	require.NoError(t, err)
	require.NoError(t, mine.Pause(ctx, "nightly"))
	stale.Priority = 3
	_, err = mine.Set(ctx, stale)
	require.Equal(t, client.TypeConflict, problemType(t, err), "it would resume the schedule")
	require.Equal(t, client.TypeConflict, problemType(t, mine.RemoveVersion(ctx, "nightly", stale.Version)))
	require.NoError(t, mine.Resume(ctx, "nightly"))
	s.Spec = "61 * * * *"
	_, err = mine.Set(ctx, s)
	require.ErrorContains(t, err, `minute "61"`)
	s.Name, s.Type, s.Spec, s.Version = "", "pdf", "@daily", 0
	_, err = mine.Set(ctx, s)
	require.ErrorContains(t, err, `name " ": must be 1 to 128 letters`, "an empty name")
	s.Name = "z"
	_, err = mine.Set(ctx, s)
	require.NoError(t, err)

	list, err := other.List(ctx, client.Names{})
	require.NoError(t, err)
	require.Len(t, list.Items, 1)
	require.Equal(t, "z", list.Items[0].Name)
	require.Equal(t, client.TypeForbidden, problemType(t, other.Remove(ctx, "nightly")))
	s.Type = "payroll"
	_, err = other.Set(ctx, s)
	require.Equal(t, client.TypeForbidden, problemType(t, err))

	s, err = mine.Get(ctx, "nightly")
	require.NoError(t, err)
	require.NoError(t, mine.RemoveVersion(ctx, "nightly", s.Version))
	for _, name := range []string{"nightly", "", ".", "..", "../jobs/1", "a/b?c"} {
		_, err = mine.Get(ctx, name)
		require.Equal(t, client.TypeNotFound, problemType(t, err), name)
	}
}

// The commands about schedules give the same output with a database and with the API of a
// dispatcher.
func TestScheduleCommandsNeedNoDatabase(t *testing.T) {
	w := newWorld(t)
	h, _ := w.startCallee(1)
	require.Equal(t, "schedule s created\n", h.onAPI("", "schedule", "set", "s", "spec=@yearly", "type=pdf", "overlap=allow_all").out)
	require.Equal(t, "schedule s changed\n", h.onAPI("", "schedule", "set", "s", "priority=3").out)
	require.Equal(t, "run: job 1\n", h.onAPI("", "schedule", "run", "s", "--key", "1").out)
	w.await(1, dispatcherd.Done)
	for line, code := range map[string]int{
		"schedule list": exit.OK, "schedule list --limit 1 -o jsonl": exit.OK, "schedule show s": exit.OK,
		"schedule show s -o json": exit.OK, "schedule show none": exit.NotFound,
		"schedule rm none": exit.NotFound, "schedule run none": exit.NotFound, "schedule pause none": exit.NotFound,
		"schedule next s -n 3": exit.OK, "schedule run s --key 1": exit.OK,
		"schedule backfill s --from 2026-01-02T00:00:00Z --to 2026-01-03T00:00:00Z": exit.OK,
	} {
		remote := h.onAPI("", strings.Fields(line)...)
		require.Equal(t, code, remote.code, "%s: %s", line, remote.err)
	}
	for line, code := range map[string]int{
		"schedule set s priority=11": exit.Usage, "schedule set s kind=interval": exit.Usage, "schedule rm none": exit.NotFound,
		"schedule pause s": exit.OK,
		"schedule backfill s --from 2026-01-02T00:00:00Z --to 2222-01-03T00:00:00Z": exit.Usage,
	} {
		require.Equal(t, code, h.onAPI("", strings.Fields(line)...).code, line)
	}
	require.Equal(t, exit.Conflict, h.onAPI("", "schedule", "run", "s").code, "it is paused")
}

// An apply over the API makes what an apply on the database compares as equal.
func TestScheduleFilesAreAppliedOverTheAPI(t *testing.T) {
	w := newWorld(t)
	h, _ := w.startCallee(1)
	apply := func(code int, file string, more ...string) string {
		t.Helper()
		got := h.onAPI(file, append([]string{"schedule", "apply", "-"}, more...)...)
		require.Equal(t, code, got.code, got.err)
		return got.err
	}
	const file = "[a]\nspec = \"@daily\"\ntype = \"pdf\"\npayload = {page = 1}\npriority = 3\n[b]\nkind = \"startup\"\nonce = " +
		"\"ever\"\ntype = \"pdf\"\n"
	require.Equal(t, "2 created, 0 changed, 0 removed\n", apply(exit.OK, file))
	require.Equal(t, "There is no difference.\n", apply(exit.OK, file))
	require.Equal(
		t,
		"0 created, 1 changed, 1 removed\n",
		apply(exit.OK, "[a]\nspec = \"@daily\"\ntype = \"pdf\"\npayload = {page = 2}\npriority = 3\n", "--prune", "--yes"),
	)
	require.Contains(t, h.onAPI("", "schedule", "show", "a").out, `{"page":2}`)
	require.Equal(t, exit.NotFound, h.onAPI("", "schedule", "show", "b").code)
	require.Contains(t, apply(exit.Usage, "[a]\nspec = \"@daily\"\ntype = \"pdf\"\npriority = 11\n"), "priority 11: must be from 0 to 10")
}
