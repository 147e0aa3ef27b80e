package e2e

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/claim"
	"github.com/dispatcherd/dispatcherd/client"
	"github.com/dispatcherd/dispatcherd/internal/exit"
	"github.com/dispatcherd/dispatcherd/internal/limits/permits"
)

// keyWriter inserts a job or a schedule with keys, and returns the error as its user sees it.
type keyWriter struct {
	name  string
	write func(ctx context.Context, keys string) string
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// keyWriters are all interfaces that take keys.
func (w *world) keyWriters(h *host) []keyWriter {
	t := w.t
	pool, err := pgxpool.New(t.Context(), w.dsn)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	c := h.caller()
	frames, err := client.New(client.Options{Socket: h.cfg.APISocket})
	require.NoError(t, err)
	t.Cleanup(frames.Close)
	post := func(path, body string, headers ...string) string {
		if r := c.ask("POST", path, body, headers...); r.StatusCode >= 300 {
			return strings.ReplaceAll(r.body, `\"`, `"`)
		}
		return ""
	}
	many := func(ctx context.Context, keys string) error {
		var jobs iter.Seq2[claim.New, error] = func(yield func(claim.New, error) bool) {
			yield(claim.New{Type: "pdf", Keys: keys}, nil)
		}
		_, err := claim.Jobs{DB: pool}.InsertMany(ctx, jobs)
		return err
	}
	file := func(keys string) string {
		path := filepath.Join(t.TempDir(), "schedules.toml")
		require.NoError(t, os.WriteFile(path, fmt.Appendf(nil, "[file]\nspec = '@yearly'\ntype = 'pdf'\nkeys = %q\n", keys), 0o600))
		return path
	}
	schedule := client.NewSchedule()
	schedule.Name, schedule.Kind, schedule.Spec, schedule.Type = "go", "cron", "@yearly", "pdf"
	return []keyWriter{
		{"claim insert", func(ctx context.Context, k string) string {
			_, err := claim.Jobs{DB: pool}.Insert(ctx, claim.New{Type: "pdf", Keys: k})
			return text(err)
		}},
		{"claim copy", func(ctx context.Context, k string) string { return text(many(ctx, k)) }},
		{"client insert", func(ctx context.Context, k string) string {
			_, err := client.Insert(ctx, pool, client.Job{Type: "pdf", Keys: k})
			return text(err)
		}},
		{"client copy", func(ctx context.Context, k string) string {
			_, err := client.InsertMany(ctx, pool, slices.Values([]client.Job{{Type: "pdf"}, {Type: "pdf", Keys: k}}))
			return text(err)
		}},
		{"command", func(_ context.Context, k string) string {
			return h.onAPI("", "job", "insert", "--type", "pdf", "--keys", k).err
		}},
		{"lines of a command", func(_ context.Context, k string) string {
			return h.onAPI(fmt.Sprintf(`{"type":"pdf","keys":%q}`, k), "job", "insert", "--quiet", "-").err
		}},
		{"HTTP job", func(_ context.Context, k string) string {
			return post("/v1/jobs", fmt.Sprintf(`{"type":"pdf","keys":%q}`, k))
		}},
		{"HTTP lines", func(_ context.Context, k string) string {
			return post("/v1/jobs", fmt.Sprintf("{\"type\":\"pdf\",\"keys\":%q}\n", k), "Content-Type", "application/x-ndjson")
		}},
		{"HTTP request", func(_ context.Context, k string) string {
			return post("/v1/requests", fmt.Sprintf(`{"type":"pdf","durable":true,"keys":%q}`, k))
		}},
		{"frames", func(ctx context.Context, k string) string {
			_, err := frames.Do(ctx, client.Request{Type: "pdf", Durable: true, Keys: k})
			return text(err)
		}},
		{"request command", func(_ context.Context, k string) string {
			return h.onAPI("", "request", "pdf", "--durable", "--keys", k).err
		}},
		{"schedule command", func(_ context.Context, k string) string {
			return h.onAPI("", "schedule", "set", "s", "spec=@yearly", "type=pdf", "keys="+k).err
		}},
		{"schedule file", func(_ context.Context, k string) string {
			return h.onAPI("", "schedule", "apply", file(k), "-o", "json").err
		}},
		{"schedule client", func(ctx context.Context, k string) string {
			s := schedule
			s.Keys = k
			_, err := frames.Schedules().Set(ctx, s)
			return text(err)
		}},
	}
}

// All interfaces accept the same keys, and reject the others with the text of Postgres.
func TestEachInterfaceTakesTheSameKeys(t *testing.T) {
	w := newWorld(t)
	h, _ := w.startCallee(4)
	writers := w.keyWriters(h)
	for _, keys := range []string{"a*0", "a  b", "a*1000001", "*", "a b c d e", strings.Repeat("k", 129)} {
		_, parsed := permits.Parse(keys)
		conn, err := pgx.Connect(t.Context(), w.dsn)
		require.NoError(t, err)
		_, err = conn.Exec(t.Context(), `INSERT INTO dispatcherd.jobs (type, keys) VALUES ('pdf', $1)`, keys)
		pg, ok := errors.AsType[*pgconn.PgError](err)
		require.True(t, ok)
		require.Contains(t, parsed.Error(), pg.Message)
		require.NoError(t, conn.Close(t.Context()))
		for _, writer := range writers {
			require.Contains(t, writer.write(t.Context(), keys), parsed.Error(), "%s: %q", writer.name, keys)
		}
	}
	require.Zero(t, w.number(`SELECT count(*) FROM dispatcherd.jobs`))
	w.exec(`INSERT INTO dispatcherd.limits (key, capacity) VALUES ('ключ', 3)`)
	const keys = "tenant:42 ключ*3 cache*all"
	for _, writer := range writers {
		problem := writer.write(t.Context(), keys)
		if strings.Contains(writer.name, "schedule") {
			problem = strings.TrimSuffix(problem, "1 created, 0 changed, 0 removed\n")
		}
		if writer.name == "request command" {
			problem = ""
		}
		require.Empty(t, problem, writer.name)
	}
	require.Equal(t, 3, w.number(`SELECT count(*) FROM dispatcherd.schedules WHERE keys = $1`, keys))
	require.Equal(t, len(writers)-3, w.number(`SELECT count(*) FROM dispatcherd.jobs WHERE keys = $1`, keys))
	w.awaitDone(len(writers) - 2) // one of them has no keys
	require.Zero(t, w.number(overSQL, "tenant:42", 1))
	require.Regexp(t, `\nkeys +tenant:42 ключ\*3 cache\*all\n`, h.onAPI("", "schedule", "show", "s").out)
	require.Equal(t, "run: job", h.onAPI("", "schedule", "run", "s").out[:8])
	require.Equal(
		t,
		len(writers)-2,
		w.number(`SELECT count(*) FROM dispatcherd.jobs WHERE keys = $1`, keys),
		"a run has the keys of its schedule",
	)
}

// Only a row holds permits, so a request in memory has no keys.
func TestRequestsInMemoryHaveNoKeys(t *testing.T) {
	w := newWorld(t)
	h, _ := w.startCallee(1)
	const reason = "keys need durable: only a row of the table holds permits; set durable to true, or leave out keys"
	r := h.caller().request(`{"type":"pdf","keys":"a"}`)
	require.Equal(t, 400, r.StatusCode)
	require.Contains(t, r.body, reason)
	require.Equal(t, 400, h.caller().request(`{"type":"pdf","durable":true,"keys":""}`).StatusCode)
	require.Contains(t, h.onAPI("", "request", "pdf", "--keys", "a").err, reason)
	frames, err := client.New(client.Options{Socket: h.cfg.APISocket})
	require.NoError(t, err)
	defer frames.Close()
	_, err = frames.Do(t.Context(), client.Request{Type: "pdf", Keys: "a"})
	require.ErrorContains(t, err, reason)
	ask := func(keys string) error {
		_, err := frames.Do(t.Context(), client.Request{Type: "pdf", Durable: true, Keys: keys, IdempotencyKey: "k"})
		return err
	}
	require.NoError(t, ask("a"))
	require.NoError(t, ask("a"))
	require.Equal(t, client.TypeKeyReused, problemType(t, ask("b")), "the keys are a part of the request")
	require.Equal(t, 1, w.number(`SELECT count(*) FROM dispatcherd.jobs`))
}

// A job shows its keys, and its fence from the admission on.
func TestJobsShowKeysAndFence(t *testing.T) {
	w := newWorld(t)
	h := w.start(w.config("d"))
	w.exec(`INSERT INTO dispatcherd.limits (key, capacity) VALUES ('paused', 0)`)
	waiting := w.insertNew(claim.New{Type: "pdf", Keys: "paused*2 b"}, work{})
	get := fmt.Sprintf("job get %d", waiting)
	got := h.onAPI("", strings.Fields(get)...)
	require.Regexp(t, `\nkeys +paused\*2 b\n`, got.out)
	require.NotContains(t, got.out, "fence")
	w.exec(`UPDATE dispatcherd.jobs SET fence = -7 WHERE id = $1`, waiting)
	job := w.get(waiting)
	require.Nil(t, job.Fence, "it waits again")
	w.exec(`UPDATE dispatcherd.limits SET capacity = 2`)
	serveCalls(t, h.cfg.WorkerSocket, 1, "pdf")
	job = w.await(waiting, dispatcherd.Done)
	require.Equal(t, "paused*2 b", *job.Keys)
	require.Positive(t, *job.Fence)
	require.Regexp(t, fmt.Sprintf(`\nfence +%d\n`, *job.Fence), h.onAPI("", strings.Fields(get)...).out)
	list := h.onAPI("", "job", "list").out
	require.Contains(t, list, "KEYS")
	require.Contains(t, list, "paused*2 b")
	require.Contains(
		t,
		h.caller().ask("GET", fmt.Sprintf("/v1/jobs/%d", waiting), "").body,
		fmt.Sprintf(`"keys":"paused*2 b","fence":%d`, *job.Fence),
	)
}

// The wait for permits is no wait for a slot. The row says so, and job why.
func TestWaitForPermitsIsNamed(t *testing.T) {
	w := newWorld(t)
	h := w.start(w.config("d"))
	w.exec(`INSERT INTO dispatcherd.limits (key, capacity) VALUES ('paused', 0)`)
	serveCalls(t, h.cfg.WorkerSocket, 1, "pdf")
	id := w.insertNew(claim.New{Type: "pdf", Keys: "paused"}, work{})
	w.insert("pdf", work{}) // a fetch finds it, so the type has waited for one
	waited := func() bool {
		return w.number(`SELECT (1000 * extract(epoch FROM statement_timestamp() - run_at))::int FROM dispatcherd.jobs WHERE id = $1`, id) > 1100
	}
	eventually(t, waited, func() string { return "a wait of a second" })
	w.exec(`UPDATE dispatcherd.limits SET capacity = 1`)
	p := w.await(id, dispatcherd.Done).Placement
	require.NotNil(t, p)
	require.Equal(t, "Permits", p.WaitedFor)
	require.Greater(t, p.Permits, 1.0)
	require.LessOrEqual(t, p.Permits, p.Waited)
	require.Regexp(t, `waited +\S+, of this \S+ for permits, longest for: Permits\n`, h.shown("job get %d", id))
	require.Regexp(t, `waited \S+, of this \S+ for permits; waited for: Permits\n`, w.why(h, id))
}

// A limit for each dispatcher has admitted a job to another dispatcher. No slot here is that of the job.
func TestWhyNamesTheDispatcherThatMayRunAJob(t *testing.T) {
	w := newWorld(t)
	h := w.start(w.config("d"))
	serveCalls(t, h.cfg.WorkerSocket, 1, "pdf")
	h.awaitSlots(1)
	w.exec(`INSERT INTO dispatcherd.jobs (type, keys, fence, admitted_to) VALUES ('pdf', 'k', 1, 4711)`)
	why := w.why(h, dispatcherd.JobID(w.number(`SELECT max(id) FROM dispatcherd.jobs`)))
	require.Regexp(t, `AdmittedElsewhere: only the dispatcher below may run it, .*\n`, why)
	require.Regexp(t, `dispatcher +one that is gone\n`, why)
	require.NotContains(t, why, "this job's")
}

// The controller explains each reason for which a job with keys waits. Another dispatcher names the controller.
func TestWhyJobsWithKeysWait(t *testing.T) {
	w := newWorld(t)
	h, c := w.startCallee(4)
	defer close(c.open)
	other := w.start(w.config("other"))
	w.exec(`INSERT INTO dispatcherd.limits (key, capacity) VALUES ('paused', 0), ('three', 3), ('gpu', 4)`)
	w.exec(`INSERT INTO dispatcherd.limits (key, capacity, rate, per) VALUES ('api', NULL, 1, '1 hour')`)
	eventually(
		t,
		func() bool {
			return w.number(`SELECT count(*) FROM dispatcherd.operations WHERE kind = 'limits_edited'`) == 0
		},
		func() string { return "the limits are read" },
	)
	add := func(keys string, priority dispatcherd.Priority) dispatcherd.JobID {
		return w.insertNew(claim.New{Type: "pdf", Keys: keys, Priority: priority}, work{Do: "gate"})
	}
	running := func(id dispatcherd.JobID) { w.await(id, dispatcherd.Running) }
	holder, rated, gpu := add("tenant:42", 0), add("api", 0), add("gpu*2", 0)
	running(holder)
	running(rated)
	running(gpu)
	says := func(id dispatcherd.JobID, pattern string) {
		t.Helper()
		eventually(t, func() bool {
			return regexp.MustCompile(pattern).MatchString(w.why(h, id))
		}, func() string { return pattern + " in\n" + w.why(h, id) })
	}
	first, second := add("tenant:42", 0), add("tenant:42", 0)
	says(first, fmt.Sprintf(`KeyBusy: 1 of capacity 1 of key tenant:42 are held by %d; place 1 in the queue\n`, holder))
	says(second, `KeyBusy: .*; place 2 in the queue\n`)
	require.NotRegexp(t, `ClaimRaceLost|Unread|rank `, w.why(h, second), "it is in no lane")
	heavy, light := add("gpu*3", 0), add("gpu", 0)
	says(heavy, fmt.Sprintf(`KeyBusy: 2 of capacity 4 of key gpu are held by %d; place 1`, gpu))
	says(light, fmt.Sprintf(`KeyOrder: job %d has precedence at key gpu; place 2`, heavy))
	says(add("api", 0), `KeyRate: the window of key api has no room until .*; place 1`)
	paused := add("paused", 0)
	says(paused, `KeyPaused: key paused is paused: its capacity is 0; .* resumes it\n`)
	says(add("three*4", 0), `KeyCost: it costs more than the limit of key three, which is 3: `)

	require.NotRegexp(t, `overtaking|\n +slot `, w.why(h, paused), "neither slots nor later jobs matter")

	require.Contains(t, w.why(other, first), fmt.Sprintf(
		"KeyElsewhere: dispatcher d is the controller and knows more; 1 of capacity 1 of key tenant:42 are held by %d\n", holder))
	w.exec(`INSERT INTO dispatcherd.jobs (type, keys, parent, first_run_at) VALUES ('pdf', 'tenant:42', $1, now())`, holder) // a child
	child := dispatcherd.JobID(w.number(`SELECT max(id) FROM dispatcherd.jobs`))
	says(child, fmt.Sprintf(`KeyBusy: .*; its parent, job %d, has a key that it needs: if the parent waits for it, neither continues`, holder))
	require.Contains(t, w.why(other, child), fmt.Sprintf("its parent, job %d, has a key", holder))
	w.exec(`DELETE FROM dispatcherd.jobs WHERE id = $1`, child)
	require.Regexp(t, `keys +tenant:42\n`, w.why(h, holder))
	require.NotContains(t, w.why(h, holder), "Key")

	for _, from := range []*host{h, other} {
		show := from.onAPI("", "key", "show", "tenant:42").out
		require.Regexp(
			t,
			fmt.Sprintf(
				`held +1 of 1, by 1 job\n +job %d pdf, cost 1, fence \d+, dispatcher d, since .*\nwaiting +2 jobs, the oldest since .*\n`,
				holder,
			),
			show,
		)
		require.Regexp(
			t,
			`KEY +HELD.*\napi +1 of none +1 +1 +api\ngpu +2 of 4 +1 +2 +gpu\npaused +0 of 0 +0 +1 +paused\n`,
			from.onAPI("", "key", "list").out,
		)
	}
	next := fmt.Sprintf(`\nnext +job %d pdf, priority 0, keys tenant:42, due .*\ncontroller +d\n`, first)
	unknown := `\nnext +unknown: only the controller knows it; ask its API with --api-socket or --api\ncontroller +d\n`
	require.Regexp(t, next, h.onAPI("", "key", "show", "tenant:42").out)
	require.Regexp(t, unknown, other.onAPI("", "key", "show", "tenant:42").out)
	require.Regexp(t, `limit +default: capacity 1,`, h.onAPI("", "key", "show", "nosuch").out)
	require.Regexp(t, `\ntenant:42 +1 of 1 +1 +1 +default\n`, h.onAPI("", "key", "list").out)
	require.Regexp(t, `started +1 of 1 in the window\n`, h.onAPI("", "key", "show", "api").out)
	require.NotContains(t, other.onAPI("", "key", "show", "api").out, "started")
}

// Limits are edited in the same way with a database, over HTTP and with the client, and errors are the same.
func TestLimitsOverEachInterface(t *testing.T) {
	w, h := callersWorld(t, fmt.Sprintf("payroll=%d", os.Getuid()))
	_, stranger := w.callerAs(h, stranger)
	own, err := client.New(client.Options{Socket: h.cfg.APISocket})
	require.NoError(t, err)
	defer own.Close()
	ctx := t.Context()
	for _, key := range []string{"tenant:*", "*", "a/b?c#d%", ".", "..", "ключ"} {
		v := client.NewLimit(key)
		v.Capacity = nil
		created, err := own.Limits().Set(ctx, v)
		require.NoError(t, err, key)
		require.True(t, created)
		got, err := own.Limits().Get(ctx, key)
		require.NoError(t, err, key)
		v.Version = got.Version
		require.Equal(t, v, got)
		_, err = own.Limits().Set(ctx, v)
		require.NoError(t, err)
		v.Version++
		_, err = own.Limits().Set(ctx, v)
		require.Equal(t, client.TypeConflict, problemType(t, err))
		require.Equal(t, client.TypeForbidden, problemType(t, stranger.Limits().Remove(ctx, key)))
		_, err = stranger.Limits().Get(ctx, key)
		require.NoError(t, err)
	}
	_, err = stranger.Keys().Show(ctx, "k")
	require.Equal(t, client.TypeForbidden, problemType(t, err))
	list, err := own.Limits().List(ctx, client.Names{Query: client.Query{Limit: 2}})
	require.NoError(t, err)
	require.Len(t, list.Items, 2)
	for _, line := range []string{
		"capacity=-1", "capacity=1000000001", "rate=3", "per=1s", "rate=3 per=1ms", "scope=host", "on_retry=no", "capacity=many",
		"rate=0", "per=1", "color=red",
	} {
		args := append([]string{"limit", "set", "k"}, strings.Fields(line)...)
		require.Equal(t, exit.Usage, h.onAPI("", args...).code, line)
	}
	for line, code := range map[string]int{
		"limit rm none": exit.NotFound, "limit list": exit.OK, "key list": exit.OK, "key show k": exit.OK,
		"limit rm tenant:*": exit.OK,
	} {
		got := h.onAPI("", strings.Fields(line)...)
		require.Equal(t, code, got.code, "%s: %s", line, got.err)
	}
	require.Equal(t, client.TypeNotFound, problemType(t, own.Limits().Remove(ctx, "")))
	_, err = own.Keys().Show(ctx, "a*2")
	require.ErrorContains(t, err, `key "a*2": must have 1 to 128 characters`)
}
