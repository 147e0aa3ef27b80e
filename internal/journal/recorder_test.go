package journal

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/actor"
	"github.com/dispatcherd/dispatcherd/internal/contract"
)

// mill keeps a core busy: every slot has a job, every lane has more of them than
// can run, and every job that ends makes room for the next. All statements are
// answered at once.
type mill struct {
	core     *actor.Core
	journal  actor.Journal // or nil
	now      actor.Instant
	next     dispatcherd.JobID
	busiest  dispatcherd.Priority // the highest one that has jobs
	running  []actor.Effect       // Sends, oldest first
	fx       []actor.Effect
	queue    []actor.Effect
	released actor.Released
	fetched  actor.Fetched
	claimed  actor.Claimed
	finished actor.Finished
}

// newMill has so many slots of four types each, of so many types in all.
func newMill(slots, types int, journal actor.Journal) *mill {
	cfg := actor.DefaultConfig()
	m := &mill{core: actor.New(cfg), journal: journal, busiest: 1}
	for first := 0; first < slots; first += 100 {
		ev := actor.Registered{Session: dispatcherd.SessionID(first + 1), Worker: "w"}
		for i := first; i < min(first+100, slots); i++ {
			s := dispatcherd.Slot{ID: dispatcherd.SlotID(i + 1), Number: int32(i)}
			for n := range min(4, types) {
				s.Types = append(s.Types, fmt.Sprintf("type-%04d", (i+n)%types))
			}
			slices.Sort(s.Types)
			ev.Slots = append(ev.Slots, s)
		}
		m.step(&ev)
	}
	for range 3 * slots / 100 {
		m.turn(100)
	}
	return m
}

// turn ends some jobs.
func (m *mill) turn(jobs int) {
	m.now++
	m.released.Results = m.released.Results[:0]
	if len(m.running) == 0 {
		m.step(actor.Notified{})
		return
	}
	m.released.Session = m.running[0].Session
	kept := m.running[:0]
	for _, e := range m.running {
		if e.Session == m.released.Session && len(m.released.Results) < jobs {
			m.released.Results = append(m.released.Results, actor.Result{Job: e.Job, Attempt: e.Attempt, OK: true})
		} else {
			kept = append(kept, e)
		}
	}
	m.running = kept
	m.step(&m.released)
}

func (m *mill) step(ev actor.Event) {
	m.feed(ev)
	for i := 0; i < len(m.queue); i++ { //nolint:intrange // it grows
		m.answer(&m.queue[i])
	}
	m.queue = m.queue[:0]
}

func (m *mill) feed(ev actor.Event) {
	if m.journal != nil {
		m.journal.Before(m.core, m.now, ev)
	}
	m.fx = m.core.Step(m.now, ev, m.fx[:0])
	if m.journal != nil {
		m.journal.After(m.fx)
	}
	for i := range m.fx {
		switch e := m.fx[i]; e.Kind {
		case actor.Send:
			m.running = append(m.running, e)
		case actor.Fetch, actor.Claim, actor.Finish:
			m.queue = append(m.queue, e)
		}
	}
}

func (m *mill) answer(e *actor.Effect) {
	switch e.Kind {
	case actor.Fetch:
		m.fetched.Request = e.Fetch
		res := &m.fetched.Result
		res.DBNow, res.Candidates = int64(m.now)*1000, res.Candidates[:0]
		for i := range e.Fetch.Lanes {
			for range e.Fetch.Lanes[i].Limit {
				if e.Fetch.Lanes[i].Priority > m.busiest {
					break
				}
				m.next++
				res.Candidates = append(res.Candidates, contract.Candidate{Lane: i, Key: contract.Key{RunAt: res.DBNow, ID: m.next}})
			}
		}
		m.feed(&m.fetched)
	case actor.Claim:
		m.claimed.Request = e.Claim
		m.claimed.Result.Won = m.claimed.Result.Won[:0]
		for _, id := range e.Claim.IDs {
			m.claimed.Result.Won = append(m.claimed.Result.Won, contract.Won{ID: id, Attempt: 1, MaxAttempts: 3})
		}
		m.feed(&m.claimed)
	case actor.Finish:
		m.finished.Request = e.Finish
		m.feed(&m.finished)
	}
}

// fill gives every field of a value something: the canary to text and bytes.
func fill(v reflect.Value, canary string, depth int) {
	switch v.Kind() {
	case reflect.Struct:
		for _, field := range v.Fields() {
			if field.CanSet() {
				fill(field, canary, depth)
			}
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), canary, depth)
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			v.SetBytes([]byte(canary))
			return
		}
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		for i := range v.Len() {
			fill(v.Index(i), canary, depth)
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(key, canary, depth)
		fill(value, canary, depth)
		v.SetMapIndex(key, value)
	case reflect.Interface:
		if depth < 2 {
			v.Set(reflect.ValueOf(actor.Reported{}))
		}
	case reflect.String:
		v.SetString(canary)
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(1)
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(1)
	}
}

// What comes back of an event is all of it but what users and workers wrote.
func TestEveryEventComesBackWithoutPayloads(t *testing.T) {
	const canary = "canary-7f3a9"
	texts := map[string]bool{} // where the names of types, workers and the like are
	for _, name := range []string{"Registered", "Requested", "Fetched", "Claimed", "Adopted", "Elsewhere", "Reweighed", "Announced"} {
		texts[name] = true
	}
	for _, k := range files.kinds {
		v := reflect.New(k.typ)
		fill(v.Elem(), canary, 0)
		ev := v.Elem().Interface().(actor.Event)
		b := k.writer()(files.codec.NewWriter(), nil, ev)
		require.Equal(t, texts[k.typ.Name()], strings.Contains(string(b), canary), k.name)
		again := k.writer()(files.codec.NewWriter(), nil, v.Interface().(actor.Event))
		require.Equal(t, b, again, "by pointer or by value")
		got, err := k.read(b)
		require.NoError(t, err, k.name)
		require.Equal(t, b, k.writer()(files.codec.NewWriter(), nil, got), k.name)
	}
	request := actor.Requested{Job: -1, Type: "pdf", Payload: []byte(canary)}
	b := files.kinds[5].writer()(files.codec.NewWriter(), nil, request)
	require.NotContains(t, string(b), canary)
}

// After a crash of the dispatcher its workers bring their jobs along; the steps
// that take them over are made again like all others.
func TestAnAdoptionIsMadeAgain(t *testing.T) {
	r := NewRecorder("d", MinBytes)
	core := actor.New(actor.DefaultConfig())
	step := func(ev actor.Event) []actor.Effect {
		r.Before(core, 1000, ev)
		fx := core.Step(1000, ev, nil)
		r.After(fx)
		return fx
	}
	fx := step(&actor.Registered{Session: 3, Worker: "w", Mark: 12, Running: []actor.Presentation{
		{Job: 17, Attempt: 1, From: 11, Slot: dispatcherd.Slot{ID: 5, Types: []string{"pdf"}}},
	}})
	i := slices.IndexFunc(fx, func(e actor.Effect) bool { return e.Kind == actor.Adopt })
	require.NotEqual(t, -1, i, "%v", fx)
	won := contract.Won{ID: 17, Attempt: 1, MaxAttempts: 3}
	fx = step(&actor.Adopted{Request: fx[i].Adopt, Result: contract.AdoptResult{Jobs: []contract.Adopted{{Won: won, Type: "pdf"}}}})
	require.True(t, slices.ContainsFunc(fx, func(e actor.Effect) bool { return e.Kind == actor.Resume && e.Job == 17 }), "%v", fx)
	step(&actor.Released{Session: 3, Results: []actor.Result{{Job: 17, Attempt: 1, OK: true}}})
	steps := 0
	require.NoError(t, written(t, r).Replay(func(s *Step) error {
		steps++
		require.False(t, s.Differs(), "step %d: %T: %+v", s.Number, s.Event, s.Effects)
		return nil
	}))
	require.Equal(t, 3, steps)
}

// Once the buffers are there a step is recorded without an allocation, but for
// a chunk of memory now and then.
func TestRecordingAllocatesNothing(t *testing.T) {
	r := NewRecorder("d", 64<<20)
	m := newMill(1000, 50, r)
	before := r.Stats()
	allocs := testing.AllocsPerRun(200, func() { m.turn(10) })
	after := r.Stats()
	steps := float64(after.Recorded-before.Recorded) / 201
	require.Greater(t, steps, 2.0)
	require.Less(t, allocs/steps, 0.5, "%v allocations in %v steps", allocs, steps)
	require.Equal(t, uint64(1), after.States, "no state was taken meanwhile")
}

// The ring stays inside its bound and holds half of it at least as history,
// from a state on.
func TestTheRingIsBounded(t *testing.T) {
	const limit = 2 * MinBytes
	r := NewRecorder("d", limit)
	m := newMill(200, 10, r)
	for range 6000 {
		m.turn(5)
		require.LessOrEqual(t, r.Stats().Bytes, limit)
	}
	st := r.Stats()
	require.Greater(t, st.States, uint64(5), "it never came round")
	require.Greater(t, st.Bytes, limit/2)
	require.Zero(t, st.Lost)
	steps := 0
	require.NoError(t, written(t, r).Replay(func(s *Step) error {
		steps++
		require.False(t, s.Differs(), "step %d", s.Number)
		return nil
	}))
	require.Equal(t, st.Steps, steps)
	require.Less(t, uint64(steps), st.Recorded)
}

// A core that is too large for the memory is not recorded, and costs a look every
// ten seconds only.
func TestAStateThatIsTooLargeIsNotRecorded(t *testing.T) {
	r := NewRecorder("d", MinBytes)
	m := newMill(5000, 10, nil)
	m.journal = r
	for range 100 {
		m.turn(10)
	}
	st := r.Stats()
	require.Equal(t, uint64(1), st.States)
	require.Positive(t, st.Lost)
	require.Zero(t, st.Steps)
	require.Zero(t, st.Bytes)
	m.now += retryPause
	m.step(actor.Tick{})
	require.Equal(t, uint64(2), r.Stats().States)
}

// A core that grows too large later keeps what was recorded before. The file says
// what is missing, and when the core is smaller again so does the next segment.
func TestAStateThatGrowsTooLargeKeepsWhatWasRecorded(t *testing.T) {
	r := NewRecorder("d", MinBytes)
	m := newMill(10, 2, r)
	crowd := &actor.Registered{Session: 77, Worker: "crowd"}
	for i := range 8000 {
		crowd.Slots = append(crowd.Slots, dispatcherd.Slot{ID: dispatcherd.SlotID(100_000 + i), Number: int32(i), Types: []string{"rare"}})
	}
	m.feed(crowd)
	for range 100 {
		m.now++
		m.feed(actor.Tick{})
	}
	st := r.Stats()
	require.Positive(t, st.Steps, "what was before is still there")
	require.EqualValues(t, 100, st.Missing)
	require.LessOrEqual(t, st.Bytes, MinBytes)
	f := written(t, r)
	text, told := f.Text(TextMissing)
	require.True(t, told)
	require.Contains(t, string(text), "the last 100 steps are missing")
	require.Contains(t, string(text), "--recorder-bytes")

	m.core, m.running, m.queue = newMill(10, 2, nil).core, nil, nil
	m.now += retryPause
	m.feed(actor.Tick{})
	require.Zero(t, r.Stats().Missing)
	f = written(t, r)
	_, told = f.Text(TextMissing)
	require.False(t, told)
	names := map[string]bool{}
	require.NoError(t, f.Replay(func(s *Step) error {
		names[s.Segment.Name] = true
		require.False(t, s.Differs(), "step %d", s.Number)
		return nil
	}))
	require.Equal(t, map[string]bool{"d": true, "d, after a gap of 100 steps that were not recorded": true}, names)
}

// An event that nobody entered is no reason to fall: the recording goes on
// behind it.
func TestAnUnknownEventEndsTheRecordingOnly(t *testing.T) {
	type novel struct{ actor.Event }
	r := NewRecorder("d", MinBytes)
	m := newMill(10, 2, r)
	before := r.Stats().Steps
	require.Positive(t, before)
	m.feed(novel{actor.Tick{}})
	require.Equal(t, before, r.Stats().Steps)
	require.Equal(t, uint64(1), r.Stats().Lost)
	m.turn(1)
	require.Greater(t, r.Stats().Steps, before)
	require.Panics(t, func() { NewRecorder("d", MinBytes-1) })
}

// BenchmarkRecorder is what recording adds to the core, per job: compare the
// time of both.
func BenchmarkRecorder(b *testing.B) {
	for _, recorded := range []bool{false, true} {
		b.Run(fmt.Sprintf("recorded=%t", recorded), func(b *testing.B) {
			m := newMill(1000, 50, nil)
			r := NewRecorder("d", 64<<20)
			if recorded {
				m.journal = r
			}
			b.ReportAllocs()
			b.ResetTimer()
			for n := 0; n < b.N; n += 10 {
				m.turn(10)
			}
			if recorded {
				st := r.Stats()
				b.ReportMetric(float64(st.Recorded)/float64(b.N), "steps/job")
				b.ReportMetric(float64(st.Longest.Microseconds()), "µs/longest-state")
			}
		})
	}
}

// BenchmarkSnapshot is how long the loop stands still for a state.
func BenchmarkSnapshot(b *testing.B) {
	for _, size := range []struct{ slots, types int }{{100, 10}, {1000, 50}, {10_000, 1000}} {
		m := newMill(size.slots, size.types, nil)
		m.busiest = dispatcherd.MaxPriority
		for range 50 {
			m.now += 2000 // time for a full look
			m.turn(100)
		}
		b.Run(fmt.Sprintf("slots=%d/types=%d/cached=%d", size.slots, size.types, m.core.Gauges().Cached), func(b *testing.B) {
			r := NewRecorder("d", Unbounded)
			for b.Loop() {
				r.segments, r.held, r.full = nil, 0, true
				r.Before(m.core, m.now, actor.Tick{})
			}
			b.ReportMetric(float64(r.size), "bytes")
		})
	}
}
