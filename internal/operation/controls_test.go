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
	p := contract.Pause{Type: "pdf", Reason: "upgrade"}
	former, version, err := w.controls().Pause(t.Context(), &p, new(contract.Duration(time.Hour)))
	require.NoError(t, err)
	require.Nil(t, former)
	require.Greater(t, version, before.Version)
	all := w.read()
	require.Equal(t, version, all.Version)
	require.Equal(t, []contract.Pause{p}, all.Pauses)
	require.Equal(t, "all", p.What)
	require.Equal(t, time.Hour, p.Until.Sub(p.At))
	require.Equal(t, "Paused by alice until "+p.Until.UTC().Format(time.RFC3339)+": upgrade", p.Text())

	again := contract.Pause{Type: "pdf", What: contract.PauseQueued}
	former, _, err = w.controls().Pause(t.Context(), &again, nil)
	require.NoError(t, err)
	require.Equal(t, &p, former, "the second pause names the one that it replaces")
	require.Equal(t, []contract.Pause{again}, w.read().Pauses)
	require.Nil(t, again.Until)

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
		"not in 0s":      {Pause: contract.Pause{Type: "pdf"}, length: 0},
		"not in -1m0s":   {Pause: contract.Pause{Type: "pdf"}, length: -time.Minute},
		"at most 366":    {Pause: contract.Pause{Type: "pdf"}, length: 367 * 24 * time.Hour},
		"1001 bytes":     {Pause: contract.Pause{Type: "pdf", Reason: strings.Repeat("x", 1001)}, length: time.Hour},
		"what":           {Pause: contract.Pause{Type: "pdf", What: "some"}, length: time.Hour},
		"type is miss":   {length: time.Hour},
		"invisible char": {Pause: contract.Pause{Type: "p\u200bdf"}, length: time.Hour},
	} {
		_, _, err := w.controls().Pause(t.Context(), &p.Pause, new(contract.Duration(p.length)))
		require.ErrorIs(t, err, ErrInvalidControl, text)
		require.ErrorContains(t, err, text)
	}
	for text, d := range map[string]contract.Drain{
		"1 to 128": {Worker: ""}, "not 129": {Worker: strings.Repeat("x", 129)}, "type is miss": {Worker: "w", Types: []string{""}},
		"1001 bytes": {Worker: "w", Reason: strings.Repeat("x", 1001)},
	} {
		_, _, err := w.controls().Drain(t.Context(), &d)
		require.ErrorIs(t, err, ErrInvalidControl, text)
		require.ErrorContains(t, err, text)
	}
	require.Empty(t, w.read().Pauses)
	require.Empty(t, w.read().Drains)
}

func TestControlsAreBounded(t *testing.T) {
	w := newWorld(t, 0)
	w.exec(`INSERT INTO dispatcherd.types (type) SELECT 't' || i FROM generate_series(1, $1) i`, contract.MaxControls)
	w.exec(`INSERT INTO dispatcherd.drains (worker, drained_by) SELECT 'w' || i, 'bob' FROM generate_series(1, $1) i`, contract.MaxControls)
	_, _, err := w.controls().Pause(t.Context(), &contract.Pause{Type: "pdf"}, nil)
	require.ErrorIs(t, err, ErrTooMany)
	_, _, err = w.controls().Pause(t.Context(), &contract.Pause{Type: "t1"}, nil)
	require.NoError(t, err, "a row that exists can be changed")
	_, _, err = w.controls().Drain(t.Context(), &contract.Drain{Worker: "w"})
	require.ErrorIs(t, err, ErrTooMany)
	former, _, err := w.controls().Drain(t.Context(), &contract.Drain{Worker: "w1"})
	require.NoError(t, err)
	require.Equal(t, "bob", former.By)
}

// Operators insert rows into operations, and the controller does what they say.
func TestOperatorsPauseAndDrainBySQL(t *testing.T) {
	w := newWorld(t, 0)
	w.exec(`INSERT INTO dispatcherd.operations (kind, name, until, reason) VALUES ('pause', 'pdf', now() + '1 h', 'why'),
		('pause_queued', 'csv', NULL, NULL), ('pause_requests', 'csv', NULL, NULL), ('pause', 'old', now() - interval '1 s', NULL),
		('drain', 'w', NULL, 'new disk'), ('drain', 'v', NULL, NULL), ('undrain', 'v', NULL, NULL), ('resume', 'nothing', NULL, NULL)`)
	done, _ := w.step()
	require.Len(t, done, 8)
	require.Contains(t, done[3], "a pause ends in at least")
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
	_, _, err := w.controls().Pause(t.Context(), &contract.Pause{Type: "pdf"}, nil)
	require.NoError(t, err)
	w.exec(`UPDATE dispatcherd.types SET paused_until = clock_timestamp() + interval '1 h'`)
	require.Len(t, w.read().Pauses, 1)
	w.exec(`UPDATE dispatcherd.types SET paused_until = clock_timestamp() - interval '1 ms'`)
	require.Empty(t, w.read().Pauses)
	_, err = w.controls().Resume(t.Context(), "pdf")
	require.ErrorIs(t, err, ErrNoControl, "it is over")
}

func TestFollowingAppliesEachVersionOnce(t *testing.T) {
	w := newWorld(t, 0)
	var seen []contract.Controls
	s := Following(w.db, func(all contract.Controls) { seen = append(seen, all) })
	step := func(now background.Now) {
		_, err := s.Step(t.Context(), now)
		require.NoError(t, err)
	}
	step(background.Now{})
	step(background.Now{})
	require.Len(t, seen, 1, "nothing has changed")
	_, _, err := w.controls().Pause(t.Context(), &contract.Pause{Type: "pdf"}, nil)
	require.NoError(t, err)
	step(background.Now{})
	require.Len(t, seen, 2)
	require.Len(t, seen[1].Pauses, 1)
	step(background.Now{Moved: time.Hour})
	require.Len(t, seen, 3, "the clock of Postgres was set, so the pauses end at other times of the local clock")
}

// The answer of a change says which dispatchers do not follow it yet, and which types of a drained worker no slot supports any more.
func TestChangesAreConfirmedByAllDispatchers(t *testing.T) {
	w := newWorld(t, 0)
	a := API{DB: w.db}
	d := contract.Drain{Worker: "w"}
	_, version, err := w.controls().Drain(t.Context(), &d)
	require.NoError(t, err)
	w.follows("a", version, `[{"worker": "w", "sessions": 2, "running": 1, "bare": ["csv", "pdf"]}]`, `{"pdf": 2, "mail": 1}`)
	w.follows("b", version-1, "", `{"csv": 1}`)
	w.exec(`INSERT INTO dispatcherd.dispatchers (name, lease, incarnation, lost_at) VALUES ('lost', '1 min', gen_random_uuid(), now())`)
	missing, err := a.confirm(t.Context(), version)
	require.NoError(t, err)
	require.Equal(t, []string{"b"}, missing)
	w.follows("b", version+1, "", `{"csv": 1}`)
	missing, err = a.confirm(t.Context(), version)
	require.NoError(t, err)
	require.Empty(t, missing)
	states, err := a.states(t.Context(), "w")
	require.NoError(t, err)
	require.Len(t, states, 1)
	require.Equal(t, 2, states[0].Sessions)
	require.Equal(t, 1, states[0].Running)
	require.Equal(t, []string{"pdf"}, states[0].Uncovered, "csv has a slot at b; the last capacity of a still counts the slots of the worker")
}

// A drain ends when no dispatcher has had the worker for some time. A failed read starts the time again.
func TestDrainEndsWhenTheWorkerIsGone(t *testing.T) {
	w := newWorld(t, 0)
	for _, d := range []contract.Drain{{Worker: "here"}, {Worker: "gone"}, {Worker: "here", Process: "p"}, {Worker: "here", Process: "q"}} {
		_, _, err := w.controls().Drain(t.Context(), &d)
		require.NoError(t, err)
	}
	w.follows("a", 1, `[{"worker": "here", "sessions": 1}, {"worker": "here", "process": "q", "sessions": 1}]`, `{}`)
	s := Forgetting(w.db)
	at := time.Now()
	step := func(after time.Duration) {
		at = at.Add(after)
		_, err := s.Step(t.Context(), background.Now{At: at})
		require.NoError(t, err)
	}
	step(0)
	step(goneTime - time.Second)
	require.Len(t, w.read().Drains, 4)
	s.Reset()
	step(time.Second)
	require.Len(t, w.read().Drains, 4, "the time begins again")
	step(goneTime)
	drains := w.read().Drains
	require.Len(t, drains, 2)
	require.Equal(t, []string{"", "q"}, []string{drains[0].Process, drains[1].Process})
}
