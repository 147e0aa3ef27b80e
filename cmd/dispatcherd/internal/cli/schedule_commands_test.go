package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/client"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/exit"
	"github.com/dispatcherd/dispatcherd/internal/httpapi/rest"
	table "github.com/dispatcherd/dispatcherd/internal/schedule/schedulestore"
)

// caller is a caller without restrictions.
type caller struct{}

func (caller) Permit(string) error          { return nil }
func (caller) PermitAll() error             { return nil }
func (caller) Reveals() bool                { return true }
func (caller) Permitted() func(string) bool { return nil }
func (caller) Name() string                 { return "" }

func (caller) ReadBody(_ http.ResponseWriter, r *http.Request) (body []byte, release func(), err error) {
	body, err = io.ReadAll(r.Body)
	return body, func() {}, err
}

// schedules are a table that the test serves.
type schedules interface {
	List(ctx context.Context, after string, limit int) ([]contract.Schedule, error)
	Get(ctx context.Context, name string) (contract.Schedule, error)
	Set(ctx context.Context, s contract.Schedule) (created bool, err error)
	Remove(ctx context.Context, name string) error
	RemoveVersion(ctx context.Context, name string, version int64) error
	Pause(ctx context.Context, name string) error
	Resume(ctx context.Context, name string) error
	Run(ctx context.Context, name, key string, force bool) (contract.MadeTick, error)
	Backfill(ctx context.Context, name string, from, to time.Time, overlap string) (map[string]int, error)
	CountBackfill(ctx context.Context, name string, from, to time.Time) (map[string]int, error)
}

// parameters are those of the calls of one schedule.
type parameters struct {
	table.Name

	Version int64     `param:"version"`
	Key     string    `param:"key"`
	Force   bool      `param:"force"`
	From    time.Time `param:"from"`
	To      time.Time `param:"to"`
	Overlap string    `param:"overlap"`
	DryRun  bool      `param:"dry_run"`
}

// calls are those of package schedulestore for another table.
func calls(s schedules, ticks []contract.Tick) []rest.Route {
	const one = "/v1/schedules/{name}"
	get := func(r *rest.Request, q *parameters) (contract.Schedule, error) {
		v, err := s.Get(r.Context(), q.Name.Name)
		if err != nil {
			err = rest.NotFound.Of(err.Error())
		}
		return v, err
	}
	named := func(do func(context.Context, string) error) func(*rest.Request, *parameters) (table.Name, error) {
		return func(r *rest.Request, q *parameters) (table.Name, error) {
			_, err := get(r, q)
			if err == nil {
				err = do(r.Context(), q.Name.Name)
			}
			return q.Name, err
		}
	}
	return []rest.Route{
		rest.On("", "GET /v1/schedules", "", func(r *rest.Request, q *rest.Names) (contract.Page[contract.Schedule], error) {
			list, err := s.List(r.Context(), string(q.Cursor), q.Limit+1)
			return rest.PageOf(list, q.Limit, func(v *contract.Schedule) any { return v.Name }), err
		}),
		rest.On("", "GET "+one, "", get),
		rest.On("", "PUT "+one, "", func(r *rest.Request, _ *parameters) (v contract.Schedule, err error) {
			if err = r.Decode(&v); err != nil {
				return v, err
			}
			created, err := s.Set(r.Context(), v)
			if created {
				r.SetStatus(http.StatusCreated)
			}
			return v, err
		}),
		rest.On("", "DELETE "+one, "", func(r *rest.Request, q *parameters) (table.Name, error) {
			return named(func(ctx context.Context, name string) error {
				if q.Version > 0 {
					return s.RemoveVersion(ctx, name, q.Version)
				}
				return s.Remove(ctx, name)
			})(r, q)
		}),
		rest.On("", "POST "+one+"/pause", "", named(s.Pause)),
		rest.On("", "POST "+one+"/resume", "", named(s.Resume)),
		rest.On("", "POST "+one+"/run", "", func(r *rest.Request, q *parameters) (contract.MadeTick, error) {
			if _, err := get(r, q); err != nil {
				return contract.MadeTick{}, err
			}
			return s.Run(r.Context(), q.Name.Name, q.Key, q.Force)
		}),
		rest.On("", "POST "+one+"/backfill", "", func(r *rest.Request, q *parameters) (b table.Backfilled, err error) {
			if q.DryRun {
				b.Counts, err = s.CountBackfill(r.Context(), q.Name.Name, q.From, q.To)
			} else {
				b.Counts, err = s.Backfill(r.Context(), q.Name.Name, q.From, q.To, q.Overlap)
			}
			if err != nil && len(b.Counts) > 0 {
				err = fmt.Errorf("%w; before, %v", err, b.Counts)
			}
			return b, err
		}),
		rest.On("", "GET "+one+"/ticks", "", func(_ *rest.Request, q *rest.Query) (contract.Page[contract.Tick], error) {
			return contract.Page[contract.Tick]{Items: ticks[:min(q.Limit, len(ticks))]}, nil
		}),
	}
}

// served returns the URL of an API of the table.
func served(t *testing.T, s schedules, ticks ...contract.Tick) string {
	t.Helper()
	mux := http.NewServeMux()
	for _, route := range calls(s, ticks) {
		mux.HandleFunc(route.Method+" "+route.Path, func(w http.ResponseWriter, r *http.Request) {
			err := route.Handle(w, rest.NewRequest(w, r, caller{}))
			p, isProblem := errors.AsType[*rest.Problem](err)
			switch refusal, refused := errors.AsType[*rest.RefusalError](err); {
			case err == nil:
				return
			case refused:
				p = refusal.Kind.Of(err.Error())
			case !isProblem:
				p = rest.Unavailable.Of(err.Error())
			}
			p.Send(w)
		})
	}
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return server.URL
}

// over returns the operations of the SDK over the API of a table.
func over(t *testing.T, s schedules) client.Schedules {
	t.Helper()
	c, err := client.New(client.Options{URL: served(t, s)})
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c.Schedules()
}

// isConflict reports whether a dispatcher has refused an edit because of another one.
func isConflict(err error) bool {
	p, ok := errors.AsType[*client.Problem](err)
	return ok && p.Type == client.TypeConflict
}

// run runs a command over the API of the table.
func run(t *testing.T, s *fakeTable, stdin string, args ...string) (out, errs string, code int) {
	t.Helper()
	a, o := newCommands()
	a.In = strings.NewReader(stdin)
	root := &cobra.Command{
		Use:               "dispatcherd",
		SilenceErrors:     true,
		SilenceUsage:      true,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error { return a.Resolve(cmd) },
	}
	root.AddCommand(a.ScheduleCommand())
	a.RegisterFlags(root.PersistentFlags())
	root.SetArgs(append(append([]string{"schedule"}, args...), "--api", served(t, s, s.ticks...), "--config", ""))
	err := root.ExecuteContext(t.Context())
	code = exit.OK
	if err != nil {
		code = exit.CodeOf(t.Context(), err)
		o.err.WriteString(err.Error())
	}
	return o.out.String(), o.err.String(), code
}

// everyKind is every kind of schedule, in some state.
func everyKind() *fakeTable {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	a, b, c, d := daily("a"), daily("b"), daily("c"), daily("d")
	a.TimeZone, a.Error = "Europe/Berlin", "no such zone"
	timeout := 1500
	a.Jitter, a.StartsAt, a.EndsAt, a.TimeoutMS = contract.Duration(time.Minute), &at, &at, &timeout
	b.Kind, b.Spec, b.Every, b.Paused, b.Overlap = contract.Interval, "", contract.Duration(90*time.Second), true, contract.QueueOne
	c.Kind, c.Spec, c.Once, c.Type, c.EndsAt = contract.Startup, "", contract.OnceEver, "sweep", &at
	d.Kind, d.Spec = contract.StartupWorker, ""
	return newFake(a, b, c, d)
}

func TestListPrintsPlanAndState(t *testing.T) {
	out, errs, _ := run(t, everyKind(), "", "list")
	require.Equal(t, `NAME  KIND            PLAN                  TYPE   OVERLAP    STATE
a     cron            @daily Europe/Berlin  pdf    skip       error: no such zone
b     interval        every 1m30s           pdf    queue_one  paused
c     startup         once                  sweep  skip       ended
d     startup-worker  once per worker       pdf    skip       active
`, out)
	require.Empty(t, errs)
	out, errs, _ = run(t, everyKind(), "", "list", "--limit", "2", "--cursor", "YQ")
	require.Equal(t, []string{"NAME", "b", "c"}, firstWords(out))
	require.Equal(t, "There are more: --cursor Yw shows the next page.\n", errs)
	out, _, _ = run(t, newFake(), "", "list", "-o", "json")
	require.Contains(t, out, `"schedules": []`)
	out, _, _ = run(t, newFake(daily("s")), "", "show", "s", "-o", "json")
	require.Contains(t, out, `"ticks": []`)
	past, ended := time.Unix(0, 0), daily("s")
	ended.EndsAt = &past
	out, _, _ = run(t, newFake(ended), "", "next", "s", "-o", "json")
	require.Contains(t, out, `"next": []`)
}

func firstWords(text string) (words []string) {
	for line := range strings.Lines(text) {
		words = append(words, strings.Fields(line)[0])
	}
	return words
}

// show prints ten ticks, and the last skip even if it is older.
func TestShowPrintsEachTick(t *testing.T) {
	s := everyKind()
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	end := at.Add(1500 * time.Millisecond)
	job := dispatcherd.JobID(7)
	s.ticks = []contract.Tick{
		{Occasion: "1", Outcome: "run", Job: &job, Status: "done", StartedAt: &at, FinishedAt: &end},
		{Occasion: "2", Outcome: "run", Job: &job, Status: "running", StartedAt: &at},
		{Occasion: "3", Outcome: "run", Job: &job},
		{Occasion: "4", Outcome: "missed", Missed: 1},
		{Occasion: "5", Outcome: "queued"},
	}
	for i := range 8 {
		s.ticks = append(s.ticks, contract.Tick{Occasion: string(rune('b' + i)), Outcome: "missed", Missed: 2})
	}
	s.ticks[11].Outcome, s.ticks[11].Reason = "skipped", "runs have not ended"
	s.ticks[12].Outcome, s.ticks[12].Reason = "skipped", "older"
	out, _, _ := run(t, s, "", "show", "a")
	require.Equal(t, `id             0
name           a
kind           cron
spec           @daily
time zone      Europe/Berlin
jitter         1m
starts at      2026-01-02T03:04:05.000Z
ends at        2026-01-02T03:04:05.000Z
catch up       1h
catch up most  1
paused         false
error          no such zone
version        1
since          0001-01-01T00:00:00.000Z
type           pdf
payload        {}
priority       0
max attempts   5
timeout        1.5s
overlap        skip
created at     0001-01-01T00:00:00.000Z
read at        2026-01-02T03:04:05.000Z
state          error: no such zone
tick 1         job 7 done after 1.5s
tick 2         job 7 running
tick 3         job 7 removed
tick 4         1 occasion missed
tick 5         queued
tick b         2 occasions missed
tick c         2 occasions missed
tick d         2 occasions missed
tick e         2 occasions missed
tick f         2 occasions missed
last skip      h: runs have not ended
`, out)
	s.ticks = s.ticks[12:]
	out, _, _ = run(t, s, "", "show", "b")
	require.Contains(t, out, "tick i         skipped: older\n")
	require.NotContains(t, out, "jitter")
	require.NotContains(t, out, "timeout")
	_, errs, code := run(t, s, "", "show", "none")
	require.Equal(t, exit.NotFound, code)
	require.Contains(t, errs, `schedule "none": no such schedule`)
}

func TestRunPassesKeyAndForce(t *testing.T) {
	s := everyKind()
	s.made = contract.MadeTick{Outcome: "run", Job: 1}
	out, _, _ := run(t, s, "", "run", "a", "--key", "k")
	require.Equal(t, "run: job 1\n", out)
	s.made = contract.MadeTick{Outcome: "skipped"}
	out, _, code := run(t, s, "", "run", "b", "--force")
	require.Equal(t, exit.OK, code)
	require.Equal(t, "skipped: earlier runs have not ended; --force ignores them\n", out)
	s.made = contract.MadeTick{Outcome: "queued"}
	out, _, _ = run(t, s, "", "run", "b")
	require.Equal(t, "queued\n", out)
	require.Equal(t, "run a k false", s.calls[0])
	first, second := strings.Fields(s.calls[1]), strings.Fields(s.calls[2])
	require.Equal(t, []string{"run", "b", "true"}, []string{first[0], first[1], first[3]})
	require.Equal(t, "false", second[3])
	_, err := time.Parse(time.RFC3339Nano, first[2])
	require.NoError(t, err)
	require.NotEqual(t, first[2], second[2], "without --key each call has another one")
	for _, c := range []struct {
		earlier contract.MadeTick
		says    string
	}{
		{contract.MadeTick{Job: 7, Earlier: "run"}, "exists: key \"k\" was used: job 7\n"},
		{contract.MadeTick{Earlier: "skipped"}, "exists: key \"k\" was used: skipped; nothing runs, use another key\n"},
	} {
		s.made = c.earlier
		s.made.Outcome = contract.TickExists
		out, _, _ = run(t, s, "", "run", "a", "--key", "k", "--force")
		require.Equal(t, c.says, out)
	}
	s.err = rest.Conflict.Of("it is paused")
	_, errs, code := run(t, s, "", "run", "a")
	require.Equal(t, exit.Conflict, code)
	require.Equal(t, "it is paused", errs)
}

func TestBackfillPassesItsBounds(t *testing.T) {
	s := everyKind()
	s.counts = map[string]int{"run": 1, "queued": 2}
	args := []string{"backfill", "a", "--from", "2026-01-02T03:04:05.000Z", "--to", "2026-02-02T03:04:05+01:00"}
	out, _, _ := run(t, s, "", args...)
	require.Equal(t, "2 queued, 1 run\n", out)
	_, _, code := run(t, s, "", append(args, "--overlap", "skip")...)
	require.Equal(t, exit.OK, code)
	require.Equal(
		t,
		[]string{
			"backfill a 2026-01-02T03:04:05.000Z 2026-02-02T02:04:05.000Z queue_all",
			"backfill a 2026-01-02T03:04:05.000Z 2026-02-02T02:04:05.000Z skip",
		},
		s.calls,
	)
	s.counts = map[string]int{"new": 3, "exists": 2}
	out, _, _ = run(t, s, "", append(args, "--dry-run")...)
	require.Equal(t, "2 with a tick, 3 new\n", out)
	require.Equal(t, "count a 2026-01-02T03:04:05.000Z 2026-02-02T02:04:05.000Z", s.calls[2], "a dry run makes no tick")
	s.counts = nil
	out, _, _ = run(t, s, "", args...)
	require.Equal(t, "no occasion\n", out)
	for _, flag := range []string{"from", "to"} {
		_, errs, code := run(t, s, "", append(args, "--"+flag, "noon")...)
		require.Equal(t, exit.Usage, code)
		require.Equal(t, "--"+flag+` "noon": must be a time, for example 2026-03-01T00:00:00Z`, errs)
	}
	s.counts, s.err = nil, errBroken
	out, errs, code := run(t, s, "", args...)
	require.Equal(t, exit.Unavailable, code)
	require.Contains(t, errs, "connection lost")
	require.Empty(t, out)
}

func TestNextPrintsJitterAndTheEnd(t *testing.T) {
	a, o := newCommands()
	v := daily("s")
	after := time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)
	end := after.AddDate(0, 0, 2)
	v.EndsAt, v.Jitter, v.Paused, v.ReadAt = &end, contract.Duration(time.Hour), true, after
	require.NoError(t, a.showNext(&v, 5))
	row := strings.Fields(strings.Split(o.out.String(), "\n")[1])
	require.Equal(t, "2026-01-03T00:00:00.000Z", row[0])
	require.Greater(t, row[5], row[0], "RUN AT contains the jitter")
	require.Less(t, row[5], "2026-01-03T01:00:00.000Z")
	require.Equal(t, "The schedule does not run now: paused.\n", o.err.String())
	a, o = newCommands()
	v.Paused, v.ReadAt = false, end
	require.NoError(t, a.showNext(&v, 5))
	require.Equal(t, "There is no further occasion.\n", o.err.String())
	out, _, _ := run(t, newFake(daily("s")), "", "next", "s", "-n", "3")
	require.Len(t, strings.Split(out, "\n"), 1+3+1)
	_, errs, code := run(t, everyKind(), "", "next", "b")
	require.Equal(t, exit.Conflict, code)
	require.Contains(t, errs, "only schedules of kind cron")
}

func TestSetEditsTheVersionThatItRead(t *testing.T) {
	s := everyKind()
	out, _, code := run(t, s, "", "set", "new", "spec=@daily", "type=pdf")
	require.Equal(t, exit.OK, code)
	require.Equal(t, "schedule new created\n", out)
	require.Equal(t, contract.Cron, s.rows["new"].Kind)
	out, _, _ = run(t, s, "", "set", "new", "priority=3", "type=excel")
	require.Equal(t, "schedule new changed\n", out)
	v := s.rows["new"]
	require.Equal(t, []any{"@daily", "excel", dispatcherd.Priority(3), int64(2)}, []any{v.Spec, v.Type, v.Priority, v.Version})
	a, _ := newCommands()
	for _, name := range []string{"new", "newer"} { // changed, and created, after set has read it
		edited := daily(name)
		edited.Version = 9
		err := a.setSchedule(t.Context(), over(t, getting{s, func() { s.rows[name] = edited }}), name, []string{"spec=@hourly", "type=pdf"})
		require.True(t, isConflict(err), "%v", err)
		require.Equal(t, edited, s.rows[name])
	}
	for args, says := range map[string]string{"spec": `"spec" is not COLUMN=VALUE`, "color=red": `column "color": must be one of`} {
		_, errs, code := run(t, s, "", "set", "new", args)
		require.Equal(t, exit.Usage, code)
		require.Contains(t, errs, says)
	}
}

// Zero is a value, not the default.
func TestFileWithoutAttemptsIsRejected(t *testing.T) {
	_, err := parse([]byte("[a]\nspec = \"@daily\"\ntype = \"pdf\"\nmax_attempts = 0\n"))
	require.EqualError(t, err, `schedule "a": max_attempts 0: must be from 1 to 32767, for example 5`)
}

func TestErrorsOfAssignments(t *testing.T) {
	a, _ := newCommands()
	s := everyKind()
	require.EqualError(
		t,
		a.setSchedule(t.Context(), over(t, s), "a", []string{"type=a", "spec=@daily", "type=b"}),
		`column "type" is given twice: name it once`,
	)
	require.Empty(t, s.calls)
	_, err := parse([]byte("[a]\nspec = \"@daily\"\ntype = \"pdf\"\npayload = {f = inf}\n"))
	require.EqualError(t, err, `schedule "a": payload is inf or nan, which JSON does not have: write a number, or a text, for example "inf"`)
}

func TestChangesOfOneSchedule(t *testing.T) {
	s := everyKind()
	for _, c := range []struct{ command, out string }{
		{"pause", "schedule a paused\n"}, {"resume", "schedule a resumed\n"}, {"rm", "schedule a removed\n"},
	} {
		out, _, _ := run(t, s, "", c.command, "a")
		require.Equal(t, c.out, out)
		_, errs, code := run(t, s, "", c.command, "none")
		require.Equal(t, exit.NotFound, code)
		require.Equal(t, `schedule "none": no such schedule: 'dispatcherd schedule list' shows all schedules`, errs)
	}
	require.Equal(t, []string{"pause a", "resume a", "remove a"}, s.calls)
}

func TestApplyOverTheAPI(t *testing.T) {
	s := newFake(daily("b"), daily("old"))
	paused := daily("c")
	paused.Paused = true
	s.rows["c"] = paused
	_, errs, code := run(t, s, threeSchedules, "apply", "-", "--prune")
	require.Equal(t, exit.Negative, code)
	require.Contains(t, errs, "This would remove 1 schedule. Add --yes to do it")
	_, _, code = run(t, s, threeSchedules, "apply", "-", "--prune", "--dry-run")
	require.Equal(t, exit.OK, code)
	require.Empty(t, s.calls)
	out, errs, code := run(t, s, threeSchedules, "apply", "-", "--prune", "--yes", "-o", "json")
	require.Equal(t, exit.OK, code, errs)
	require.Equal(t, "1 created, 2 changed, 1 removed\n", errs)
	require.Equal(t, []string{"set a", "set b", "set c", "remove old"}, s.calls)
	require.True(t, s.rows["c"].Paused, "a pause remains")
	require.Contains(t, out, `"edit": "create"`)
	out, _, _ = run(t, s, strings.Replace(threeSchedules, "[c]", "[c]\npaused = false", 1), "apply", "-")
	require.Equal(t, "change  c         paused  true  false", strings.Split(out, "\n")[1])
	require.False(t, s.rows["c"].Paused)
	_, errs, code = run(t, newFake(), strings.Repeat("\n", maxFile+1), "apply", "-")
	require.Equal(t, exit.Usage, code)
	require.Equal(t, "- has more than 67108864 bytes", errs)
	s.err, s.after = errBroken, len(s.calls)
	_, errs, code = run(t, s, "[e]\nspec = \"@daily\"\ntype = \"pdf\"\n", "apply", "-")
	require.Equal(t, exit.Unavailable, code)
	require.Contains(t, errs, "Before the error: 0 created, 0 changed, 0 removed.")
	require.Contains(t, errs, "connection lost")
}

// All pages are compared.
func TestApplyReadsAllPages(t *testing.T) {
	for _, n := range []int{999, 1000, 1001, 2500} {
		all, removed, err := compare(t.Context(), over(t, many{newFake(), n}), nil, true)
		require.NoError(t, err)
		require.Equal(t, n, removed)
		require.Equal(t, int64(1), all[n-1].wanted.Version)
	}
}
