package operation

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/internal/background"
	"github.com/dispatcherd/dispatcherd/internal/contract"
)

func (w *world) controls() Controls { return Controls{DB: w.db, By: "alice"} }

// read reads the controls.
func (w *world) read() contract.Controls {
	w.t.Helper()
	all, err := w.controls().Read(w.t.Context())
	require.NoError(w.t, err)
	return all
}

// follows makes a dispatcher say that it follows a version and has drained workers.
func (w *world) follows(name string, version int64, drained, capacity string) {
	w.t.Helper()
	w.exec(`INSERT INTO dispatcherd.dispatchers (name, lease, incarnation) SELECT $1, '1 min', gen_random_uuid()
		WHERE NOT EXISTS (SELECT FROM dispatcherd.dispatchers WHERE name = $1)`, name)
	w.exec(`UPDATE dispatcherd.dispatchers SET controls = $2, drained = nullif($3, '')::jsonb, capacity = $4::jsonb WHERE name = $1`,
		name, version, drained, capacity)
}

func TestPauseSaysWhoWhenUntilAndWhy(t *testing.T) {
	w := newWorld(t, 0)
	before := w.read()
	hour := new(contract.Duration(time.Hour))
	p, version, err := w.controls().Pause(t.Context(), contract.Pause{Type: "pdf", What: "all", Reason: "upgrade"}, hour)
	require.NoError(t, err)
	require.Empty(t, p.Former)
	require.Greater(t, version, before.Version)
	all := w.read()
	require.Equal(t, version, all.Version)
	require.Equal(t, []contract.Pause{p.Pause}, all.Pauses)
	require.Equal(t, time.Hour, p.Until.Sub(p.At))
	require.Equal(t, "Paused by alice until "+p.Until.UTC().Format(time.RFC3339)+": upgrade", p.Text())

	again, _, err := Controls{DB: w.db, By: "bob"}.Pause(t.Context(), contract.Pause{Type: "pdf", What: contract.PauseQueued}, nil)
	require.NoError(t, err)
	require.Equal(t, "alice", again.Former, "the second pause says whose pause it replaces")
	require.Equal(t, []contract.Pause{again.Pause}, w.read().Pauses)
	require.Nil(t, again.Until)
	require.Equal(t, "Paused by bob", again.Text())

	_, err = w.controls().Resume(t.Context(), "pdf")
	require.NoError(t, err)
	require.Empty(t, w.read().Pauses)
	_, err = w.controls().Resume(t.Context(), "pdf")
	require.ErrorIs(t, err, ErrNoControl)
	require.ErrorContains(t, err, `type "pdf" is not paused`)
}

func TestInvalidControlsAreRefused(t *testing.T) {
	w := newWorld(t, 0)
	for text, p := range map[string]struct {
		contract.Pause

		length time.Duration
	}{
		"pause lasts at least 1 microsecond": {Pause: contract.Pause{Type: "pdf", What: "all"}, length: 0},
		"at most 366 days":                   {Pause: contract.Pause{Type: "pdf", What: "all"}, length: 367 * 24 * time.Hour},
		"pause reason is at most 1000 bytes": {Pause: contract.Pause{Type: "p", What: "all", Reason: strings.Repeat("x", 1001)}, length: 1e9},
		"paused is all queued or requests":   {Pause: contract.Pause{Type: "pdf", What: "some"}, length: time.Hour},
		"type is 1 to 128 bytes":             {Pause: contract.Pause{What: "all"}, length: time.Hour},
		"type has no invisible character":    {Pause: contract.Pause{Type: "p\u200bdf", What: "all"}, length: time.Hour},
	} {
		_, _, err := w.controls().Pause(t.Context(), p.Pause, new(contract.Duration(p.length)))
		require.ErrorContains(t, err, text)
	}
	for text, d := range map[string]contract.Drain{
		"worker is 1 to 128 bytes":     {Worker: strings.Repeat("x", 129)},
		"type is missing":              {Worker: "w", Types: []string{"pdf", ""}},
		"invisible character U+200B":   {Worker: "w", Types: []string{"\u200b"}},
		"reason is at most 1000 bytes": {Worker: "w", Reason: strings.Repeat("x", 1001)},
	} {
		_, _, err := w.controls().Drain(t.Context(), d)
		require.ErrorContains(t, err, text)
	}
	require.Empty(t, w.read().Pauses)
	require.Empty(t, w.read().Drains)
}

func TestControlsAreBounded(t *testing.T) {
	w := newWorld(t, 0)
	w.exec(`INSERT INTO dispatcherd.types (type, max_attempts) SELECT 't' || i, 3 FROM generate_series(1, $1) i`, contract.MaxControls)
	w.exec(`INSERT INTO dispatcherd.drains (worker, drained_by) SELECT 'w' || i, 'bob' FROM generate_series(1, $1) i`, contract.MaxControls)
	_, _, err := w.controls().Pause(t.Context(), contract.Pause{Type: "pdf", What: "all"}, nil)
	require.ErrorIs(t, err, ErrTooMany)
	_, _, err = w.controls().Pause(t.Context(), contract.Pause{Type: "t1", What: "all"}, nil)
	require.NoError(t, err, "a row that exists can be changed")
	_, _, err = w.controls().Drain(t.Context(), contract.Drain{Worker: "w"})
	require.ErrorIs(t, err, ErrTooMany)
	_, _, err = w.controls().Drain(t.Context(), contract.Drain{Worker: "w1", Types: make([]string, contract.MaxDrainedTypes+1)})
	require.ErrorContains(t, err, "1001 types are given, at most 1000 are possible")
	_, err = w.controls().Resume(t.Context(), "t1")
	require.NoError(t, err)
	w.exec(`UPDATE dispatcherd.types SET max_attempts = NULL WHERE type IN ('t1', 't2')`)
	_, _, err = w.controls().Pause(t.Context(), contract.Pause{Type: "pdf", What: "all"}, nil)
	require.NoError(t, err, "types that are neither paused nor have a policy do not count")
	d, _, err := w.controls().Drain(t.Context(), contract.Drain{Worker: "w1", Types: []string{}})
	require.NoError(t, err)
	require.Equal(t, "bob", d.Former)
	require.Nil(t, d.Types)
}

// Operators insert rows into operations, and the controller does what they say.
func TestOperatorsPauseAndDrainBySQL(t *testing.T) {
	w := newWorld(t, 0)
	w.exec(`INSERT INTO dispatcherd.operations (kind, name, until, reason) VALUES ('pause', 'pdf', now() + '1 h', 'why'),
		('pause_queued', 'csv', NULL, NULL), ('pause_requests', 'csv', NULL, NULL), ('pause', 'old', now() - interval '1 s', NULL),
		('drain', 'w', NULL, 'new disk'), ('drain', 'v', NULL, NULL), ('undrain', 'v', NULL, NULL), ('resume', 'nothing', NULL, NULL)`)
	done, _ := w.step()
	for _, until := range []string{"infinity", "-infinity"} { // Go cannot read them, so they would stop all other operations
		_, err := w.db.Exec(t.Context(),
			`INSERT INTO dispatcherd.operations (kind, name, until) VALUES ('pause', 'pdf', $1::text::timestamptz)`, until)
		require.ErrorContains(t, err, "until_is_a_time_or_null")
	}
	_, err := w.db.Exec(t.Context(), `INSERT INTO dispatcherd.operations (kind, name) VALUES ('pause', repeat('x', 1001))`)
	require.ErrorContains(t, err, "name_is_at_most_1000_bytes", "the log contains it")
	require.Len(t, done, 8)
	require.Contains(t, done[3], "pause lasts at least")
	require.Contains(t, done[7], `type "nothing" is not paused`)
	require.Zero(t, w.left())
	all := w.read()
	require.Len(t, all.Pauses, 2)
	require.Equal(t, contract.PauseRequests, all.Pauses[0].What)
	require.Equal(t, "why", all.Pauses[1].Reason)
	require.NotNil(t, all.Pauses[1].Until)
	require.Len(t, all.Drains, 1)
	require.Equal(t, "new disk", all.Drains[0].Reason)
}

func TestPauseEndsByTheClockOfPostgres(t *testing.T) {
	w := newWorld(t, 0)
	_, _, err := w.controls().Pause(t.Context(), contract.Pause{Type: "pdf", What: "all"}, nil)
	require.NoError(t, err)
	w.exec(`UPDATE dispatcherd.types SET paused_until = clock_timestamp() + interval '1 h'`)
	require.Len(t, w.read().Pauses, 1)
	wait, err := Following(w.db, func(contract.Controls) {}).Step(t.Context(), background.Now{})
	require.NoError(t, err)
	require.InDelta(t, time.Hour, wait, float64(time.Minute), "the controls are read again when the pause ends")
	w.exec(`UPDATE dispatcherd.types SET paused_at = now() - interval '1 h', paused_until = clock_timestamp() - interval '1 ms'`)
	require.Empty(t, w.read().Pauses)
	_, err = w.controls().Resume(t.Context(), "pdf")
	require.ErrorIs(t, err, ErrNoControl, "it is over")
}

// The answer of a change says which dispatchers do not follow it yet, and which types of a drained worker no slot supports any more.
func TestChangesAreConfirmedByAllDispatchers(t *testing.T) {
	w := newWorld(t, 0)
	a := API{DB: w.db}
	_, version, err := w.controls().Drain(t.Context(), contract.Drain{Worker: "w"})
	require.NoError(t, err)
	w.follows("a", version, `{"w/": 1, "w/q": 7}`, `{"pdf": 2, "mail": 0}`)
	w.follows("b", version-1, "", `{"csv": 1}`)
	w.exec(`INSERT INTO dispatcherd.dispatchers (name, lease, incarnation, lost_at) VALUES ('lost', '1 min', gen_random_uuid(), now())`)
	missing, err := a.confirm(t.Context(), version)
	require.NoError(t, err)
	require.Equal(t, []string{"b"}, missing)
	w.follows("b", version+1, "", `{"csv": 1}`)
	missing, err = a.confirm(t.Context(), version)
	require.NoError(t, err)
	require.Empty(t, missing)
	offered, err := a.offered(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{"csv", "pdf"}, offered)
}

// A drain ends when the controller has looked ten times in vain for a dispatcher that has the worker.
func TestDrainEndsWhenTheWorkerIsGone(t *testing.T) {
	w := newWorld(t, 0)
	for _, d := range []contract.Drain{{Worker: "here"}, {Worker: "gone"}, {Worker: "here", Process: "p"}, {Worker: "here", Process: "q"}} {
		_, _, err := w.controls().Drain(t.Context(), d)
		require.NoError(t, err)
	}
	w.follows("a", 1, `{"here/": 0, "here/q": 1}`, `{}`)
	s := Forgetting(w.db)
	step := func() {
		_, err := s.Step(t.Context(), background.Now{})
		require.NoError(t, err)
	}
	version := w.read().Version
	for range goneLooks {
		step()
	}
	require.Equal(t, version, w.read().Version, "the looks change nothing that dispatchers follow")
	require.Len(t, w.read().Drains, 4)
	w.follows("a", 1, `{"here/": 0, "here/q": 1, "gone/": 0}`, `{}`)
	step()
	require.Len(t, w.read().Drains, 3, "of p there was no trace")
	w.follows("a", 1, `{"here/": 0, "here/q": 1}`, `{}`)
	for range goneLooks {
		step()
	}
	require.Len(t, w.read().Drains, 3, "the count began again")
	before := w.read().Version
	step()
	drains := w.read().Drains
	require.Greater(t, w.read().Version, before)
	require.Len(t, drains, 2)
	require.Equal(t, []string{"", "q"}, []string{drains[0].Process, drains[1].Process})
}
