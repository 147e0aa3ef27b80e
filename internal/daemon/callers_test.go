package daemon

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/actor"
	"github.com/dispatcherd/dispatcherd/internal/ondemand"
)

// silent is a Performer for whom nothing happens.
type silent struct{}

// Perform implements actor.Performer.
func (silent) Perform([]actor.Effect) {}

// Nobody hangs because the loop is over: neither who waits already nor who
// comes later. Each is counted under one end.
func TestCallersAreAnsweredWhenTheLoopHasEnded(t *testing.T) {
	c := newCallers(actor.NewActor(actor.New(actor.DefaultConfig()), nil))
	c.loop.Start(silent{})
	before := make(oneAnswer, 1)
	c.submit(ondemand.Request{Type: "x", WaitCapacity: true}, before)
	c.loop.Stop()
	c.release()
	require.Equal(t, ondemand.Stopping, (<-before).Kind)

	got, err := c.do(t.Context(), Request{Type: "x", Wait: true})
	require.NoError(t, err)
	require.Equal(t, actor.AnswerStopping, got.Kind)

	submitted, waiting, ends := c.tally()
	require.EqualValues(t, 2, submitted)
	require.Zero(t, waiting)
	require.EqualValues(t, 2, ends[ondemand.Stopping])
}

// begun is a caller who wants to know whether his request began.
type begun struct {
	oneAnswer

	slot dispatcherd.SlotID
}

// Started implements ondemand.Caller.
func (b *begun) Started(slot dispatcherd.SlotID, _ string) { b.slot = slot }

// The loop may just be starting a request whose caller is late. He hears of it: his
// key would start it once more if he did not.
func TestWhoIsLateHearsThatHisRequestHasJustBegun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCallers(actor.NewActor(actor.New(actor.DefaultConfig()), nil))
		c.loop.Start(silent{})
		defer c.loop.Stop()
		late := &begun{oneAnswer: make(oneAnswer, 1)}
		id := c.submit(ondemand.Request{Type: "x", WaitCapacity: true}, late)
		gone := make(chan struct{})
		c.loop.Ask(func(*actor.Core) { // the loop is at work
			go func() {
				defer close(gone)
				c.abandon(id)
			}()
			synctest.Wait()
			c.Started(&actor.Started{Job: id, Slot: 7})
		})
		<-gone
		require.EqualValues(t, 7, late.slot)
		submitted, waiting, ends := c.tally()
		require.EqualValues(t, 1, submitted)
		require.Zero(t, waiting)
		require.EqualValues(t, 1, ends[0])
	})
}

// A row that is being written while the dispatcher stops stays, and so does the
// row of a caller whose connection breaks then: whoever waits is told where to
// ask, and nothing is cancelled.
func TestDurableRequestsOutliveTheirDispatcher(t *testing.T) {
	rows := newRows(nil, time.Second, nil)
	before, late := make(oneAnswer, 1), make(oneAnswer, 1)
	rows.watch(1, before, true)
	rows.release()
	rows.watch(2, late, true)
	require.Equal(t, theRowStays, <-before)
	require.Equal(t, theRowStays, <-late)
	begun, ends := rows.tally()
	require.EqualValues(t, 2, begun)
	require.EqualValues(t, 2, ends[ondemand.Stopping])
	require.Empty(t, rows.ids())

	d := &Daemon{rows: rows, ended: make(chan struct{})}
	close(d.ended)
	(*backend)(d).Abandon(2, late) // there is no Postgres that could cancel it
}
