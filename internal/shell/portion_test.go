package shell

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/actor"
)

// slotsWith returns slots with the given numbers of types.
func slotsWith(types ...int) (slots []dispatcherd.Slot) {
	for i, n := range types {
		slots = append(slots, dispatcherd.Slot{Number: int32(i), Types: make([]string, n)})
	}
	return slots
}

func TestSlotsAreRegisteredInPortions(t *testing.T) {
	for name, c := range map[string]struct {
		types, portions []int
	}{
		"no slot":      {nil, []int{0}},
		"one portion":  {[]int{5, 5, 5}, []int{3}},
		"full portion": {[]int{40, 40, 5}, []int{2, 1}},
		"large slots":  {[]int{500, 1, 500, 500}, []int{1, 1, 1, 1}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []dispatcherd.Slot
			var portions []int
			Register(func(e actor.Event) {
				ev := e.(actor.Registered)
				require.EqualValues(t, 7, ev.Session)
				require.False(t, ev.MoreOffers)
				got = append(got, ev.Slots...)
				portions = append(portions, len(ev.Slots))
			}, actor.Registered{Session: 7, Slots: slotsWith(c.types...)}, 100)
			require.Equal(t, slotsWith(c.types...), got)
			require.Equal(t, c.portions, portions)
		})
	}
}

func TestOffersPrecedeSlotsAndSayWhetherMoreFollow(t *testing.T) {
	ev := actor.Registered{Session: 7, Slots: slotsWith(60, 60)}
	for i, s := range slotsWith(60, 60, 60) {
		ev.Offers = append(ev.Offers, actor.ResumeOffer{Job: dispatcherd.JobID(i), Slot: s})
	}
	var got []actor.Registered
	Register(func(ev actor.Event) { got = append(got, ev.(actor.Registered)) }, ev, 100)
	require.Equal(t, []actor.Registered{
		{Session: 7, Offers: ev.Offers[:1], MoreOffers: true},
		{Session: 7, Offers: ev.Offers[1:2], MoreOffers: true},
		{Session: 7, Offers: ev.Offers[2:]},
		{Session: 7, Slots: ev.Slots[:1]},
		{Session: 7, Slots: ev.Slots[1:]},
	}, got)
}
