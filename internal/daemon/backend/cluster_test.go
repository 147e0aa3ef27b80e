package backend

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/internal/background"
	"github.com/dispatcherd/dispatcherd/internal/contract"
)

// summaryTable is the table of summaries in a synctest bubble, with the dispatchers that share it. Each statement takes a few milliseconds.
type summaryTable struct {
	lock    sync.Mutex // of all that follows
	members []contract.Member
	runs    []*background.Runner
	sent    []int // statements of each dispatcher
	deaf    []bool
	down    bool
}

// silentSteps is an observer that ignores everything.
type silentSteps struct{}

func (silentSteps) Stepped(string, time.Duration, background.Outcome, error) {}

// join adds a dispatcher with so many workers, and runs its service until the end of the test.
func (s *summaryTable) join(t *testing.T, name string, workers int) *Cluster {
	s.lock.Lock()
	defer s.lock.Unlock()
	n := len(s.members)
	me := int32(n + 1)
	s.members = append(s.members, contract.Member{ID: me, Name: name, State: contract.RunningDispatcher})
	s.sent, s.deaf = append(s.sent, 0), append(s.deaf, false)
	own := func() contract.Summary {
		return contract.Summary{Workers: make([]contract.Worker, workers), SlotCounts: contract.SlotCounts{Slots: n + 1}}
	}
	c := NewCluster(func() int32 { return me }, own, s.exchange)
	run := background.New(silentSteps{}, c.Answering())
	s.runs = append(s.runs, run)
	ctx, end := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		run.Run(ctx)
	}()
	t.Cleanup(func() {
		end()
		<-ended
	})
	return c
}

// exchange is claim.Jobs.Exchange.
func (s *summaryTable) exchange(ctx context.Context, me int32, summary []byte, ask bool) ([]contract.Member, error) {
	select {
	case <-time.After(3 * time.Millisecond):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	s.lock.Lock()
	defer s.lock.Unlock()
	s.sent[me-1]++
	if s.down {
		return nil, errors.New("no answer")
	}
	m := &s.members[me-1]
	m.Text, m.WrittenAt = summary, new(time.Now())
	if !ask {
		return nil, nil
	}
	read := append([]contract.Member{}, s.members...)
	for i := range read {
		read[i].ReadAt = time.Now()
		if !s.deaf[i] {
			s.runs[i].Wake(contract.WatchAsked)
		}
	}
	return read, nil
}

// set changes the table.
func (s *summaryTable) set(change func()) {
	s.lock.Lock()
	defer s.lock.Unlock()
	change()
}

// statements returns the number of statements of a dispatcher since the last call of total.
func (s *summaryTable) statements(i int) (n int) {
	s.set(func() { n = s.sent[i] })
	return n
}

// total returns the number of statements since the last call.
func (s *summaryTable) total() (n int) {
	s.set(func() {
		for i := range s.sent {
			n, s.sent[i] = n+s.sent[i], 0
		}
	})
	return n
}

func TestFirstCallGetsTheAnswersOfAllDispatchers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &summaryTable{}
		a, _, _ := s.join(t, "a", 1), s.join(t, "b", 2), s.join(t, "c", 3)
		<-time.After(time.Hour)
		require.Zero(t, s.total(), "while no caller looks, there are no statements")
		began := time.Now()
		members := a.view(true)
		require.Less(t, time.Since(began), 100*time.Millisecond)
		for i, m := range members {
			require.True(t, m.Answered, m.Name)
			require.Len(t, m.Workers, i+1)
			require.Equal(t, i+1, m.Slots)
		}
		<-time.After(time.Hour)
		require.Equal(t, 2+1+1, s.total(), "two reads, and an answer of each of the others")
	})
}

// A hundred viewers at two dispatchers ask ten times per second for a minute.
func TestStatementsDoNotDependOnTheNumberOfViewers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &summaryTable{}
		a, b, _ := s.join(t, "a", 1), s.join(t, "b", 1), s.join(t, "c", 1)
		ctx, end := context.WithTimeout(t.Context(), time.Minute)
		defer end()
		worst := make([]time.Duration, 100) // of each viewer
		var ended sync.WaitGroup
		for n := range worst {
			c := a
			if n%2 == 1 {
				c = b
			}
			ended.Go(func() {
				<-time.After(time.Duration(n) * 7 * time.Millisecond)
				for ctx.Err() == nil {
					began := time.Now()
					for _, m := range c.view(true) {
						if !m.Answered {
							worst[n] = time.Hour
						}
					}
					worst[n] = max(worst[n], time.Since(began))
					<-time.After(100 * time.Millisecond)
				}
			})
		}
		ended.Wait()
		require.Less(t, slices.Max(worst), 100*time.Millisecond)
		for i := range s.sent {
			sent := s.statements(i)
			require.LessOrEqual(t, sent, 62, "dispatcher %d", i)
			require.GreaterOrEqual(t, sent, 50, "dispatcher %d", i)
		}
	})
}

func TestDispatcherThatDoesNotAnswerIsNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &summaryTable{}
		a, _ := s.join(t, "a", 1), s.join(t, "b", 1)
		look := func() (notes []string, took time.Duration) {
			began := time.Now()
			for _, m := range a.view(true) {
				notes = append(notes, notesOf(&m)...)
			}
			return notes, time.Since(began)
		}
		s.set(func() { s.deaf[1] = true })
		notes, took := look()
		require.LessOrEqual(t, took, answerTime)
		require.Equal(t, []string{"dispatcher b did not answer within 500ms; its rows are missing"}, notes)
		require.LessOrEqual(t, s.statements(0), 5)

		s.set(func() { s.deaf[1] = false })
		<-time.After(viewTime)
		look() // it does not wait again for a dispatcher that did not answer
		<-time.After(viewTime)
		notes, took = look()
		require.Empty(t, notes)
		require.Less(t, took, 50*time.Millisecond)
		s.set(func() { s.deaf[1] = true })
		s.total()
		for range 20 {
			<-time.After(viewTime)
			notes, _ = look()
		}
		require.Len(t, notes, 1)
		require.Regexp(t, `^dispatcher b did not answer within 500ms; its rows are from 00:00:0[1-3] UTC$`, notes[0])
		require.LessOrEqual(t, s.statements(0), 20+6)
	})
}

func TestCallersGetAnAnswerWhilePostgresDoesNotAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &summaryTable{down: true}
		a := s.join(t, "a", 1)
		began := time.Now()
		for range 100 {
			require.Nil(t, a.view(true))
		}
		require.Less(t, time.Since(began), answerTime, "callers do not wait one after the other")
		s.set(func() { s.down = false })
		<-time.After(viewTime)
		require.Len(t, a.view(true), 1)
	})
}

func TestSummaryHasBoundsOfRowsAndBytes(t *testing.T) {
	names := strings.Repeat("x", 2000)
	for _, c := range []struct {
		own  contract.Summary
		most int
	}{
		{contract.Summary{Workers: make([]contract.Worker, SummaryRows)}, 0},
		{contract.Summary{Workers: make([]contract.Worker, SummaryRows+1)}, SummaryRows},
		{contract.Summary{Types: make([]contract.Type, 3*SummaryRows)}, SummaryRows},
		{contract.Summary{SlotList: make([]contract.Slot, SummaryRows)}, 500},
	} {
		for i := range c.own.SlotList {
			c.own.SlotList[i].Types = []string{names}
		}
		var text []byte
		cluster := NewCluster(func() int32 { return 1 }, func() contract.Summary { return c.own },
			func(_ context.Context, _ int32, summary []byte, _ bool) ([]contract.Member, error) {
				text = summary
				return nil, nil
			})
		_, err := cluster.write(t.Context(), false)
		require.NoError(t, err)
		require.LessOrEqual(t, len(text), summaryBytes)
		var said contract.Summary
		require.NoError(t, json.Unmarshal(text, &said))
		require.Equal(t, c.most, said.CutAt)
		all := len(c.own.Workers) + len(c.own.Types) + len(c.own.SlotList)
		_, left := cluster.Written()
		require.EqualValues(t, all-len(said.Workers)-len(said.Types)-len(said.SlotList), left)
		if c.most > 0 {
			require.Equal(t, c.most, all-int(left))
			m := contract.Member{Name: "b", Answered: true, Summary: said}
			require.Contains(t, notesOf(&m)[0], "of dispatcher b, only ")
		}
	}
}

func TestStatusOfATypeAddsUpTheDispatchers(t *testing.T) {
	rows, many := 3, contract.PendingLimit+1
	types := sumTypes([]contract.Type{
		{Type: "excel", Capacity: 2, Free: 1, OtherSlots: 3, Pending: &many, Oldest: 5},
		{Type: "excel", Capacity: 2, Free: 2, OtherSlots: 3, Pending: &many, Requests: 1, Oldest: 2, OldestKeyed: 7},
		{Type: "pdf", Pending: &rows, Oldest: 90},
	})
	require.Equal(t, []contract.TypeStatus{
		{Type: "pdf", Pending: &rows, Oldest: 90},
		{Type: "excel", Slots: 5, Free: 3, Pending: &many, Requests: 1, Oldest: 7}, // a third dispatcher, which does not answer, has a slot
	}, types)
	n, exact := types[1].Waiting()
	require.Equal(t, contract.PendingLimit+1, n)
	require.False(t, exact)
	b := &Backend{Config: Config{Window: time.Minute}}
	alarms := b.aboutTypes(append(types, contract.TypeStatus{Type: "mail", Slots: 1, Requests: 1, Oldest: 61},
		contract.TypeStatus{Type: "long", Known: 1, Oldest: 2}, contract.TypeStatus{Type: "fax", Known: 1, Oldest: 2}), []contract.Slot{
		{Types: []string{"pdf"}},
		{Types: []string{"long"}, Drain: &contract.Drain{Worker: "render-1", By: "alice", Reason: "maint"}},
		{Types: []string{"mail"}, Drain: &contract.Drain{Worker: "render-2", By: "bob", Types: []string{"fax"}}},
	})
	require.Equal(t, []contract.Alarm{
		{Kind: "no_slot", About: "pdf",
			Text: `type "pdf": 3 waiting, the oldest for 1m30s, and no slot supports the type: start a worker for it`},
		{Kind: "beyond_window", About: "mail", Text: "type \"mail\": the oldest job has waited 1m1s, longer than W (1m0s): it needs more slots"},
		{Kind: "no_slot", About: "long", Text: "type \"long\": 1 waiting, the oldest for 2s, and no slot supports the type: " +
			"worker render-1 supports it, but was drained by alice (maint): 'dispatcherd worker resume render-1'"},
		{Kind: "no_slot", About: "fax", Text: "type \"fax\": 1 waiting, the oldest for 2s, and no slot supports the type: " +
			"worker render-2 supports it, but was drained by bob: 'dispatcherd worker resume render-2'"},
	}, alarms)
}

func TestAlarmsNameWhatIsWrong(t *testing.T) {
	m := contract.Member{Name: "a", State: "running", Answered: true, HeartbeatAge: 1.2, Troubles: []byte(
		`[["schedule_refused", "nightly", "no such time"], ["flow_set_aside", "batch 7", "torn"]]`)}
	m.Alarms = []contract.Alarm{{Kind: "own"}}
	require.Equal(t, []contract.Alarm{
		{Kind: "own"},
		{Kind: "schedule_refused", About: "nightly", Text: "schedule nightly: no such time; 'dispatcherd schedule set' corrects it"},
		{Kind: "flow_set_aside", About: "batch 7", Text: "batch 7 is set aside: torn; 'dispatcherd flow repair' or 'batch repair' continues it"},
	}, alarmsOf(&m))
	m.Answered, m.Troubles, m.Alarms = false, nil, nil
	require.Equal(t, []contract.Alarm{
		{Kind: "dispatcher_silent", About: "a", Text: "dispatcher a does not answer; its last heartbeat was 1s ago"},
	}, alarmsOf(&m))
	m.State = "lost"
	require.Equal(t, []contract.Alarm{
		{Kind: "dispatcher_lost", About: "a", Text: "dispatcher a is lost: its last heartbeat was 1s ago; others take over its jobs"},
	}, alarmsOf(&m))
	m.State = "leaving"
	require.Empty(t, alarmsOf(&m))
}
