package backend

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dispatcherd/dispatcherd/internal/contract"
)

// The bounds of a status.
const (
	statusTypes  = 100
	statusAlarms = 100
)

// Status implements httpapi.Backend.
func (b *Backend) Status() contract.Status {
	members, notes := b.members(false)
	s := contract.Status{
		At: members[0].ReadAt, Dispatchers: members, Notes: notes, Window: contract.Seconds(b.Window), Alarms: []contract.Alarm{},
	}
	var list []contract.Type
	var slots []contract.Slot
	for i := range members {
		m := &members[i]
		if s.Alarms = append(s.Alarms, alarmsOf(m)...); m.Lives() {
			list, slots = append(list, m.Types...), append(slots, m.SlotList...)
			s.Total.Add(&m.Summary)
		}
		m.Alarms, m.Workers, m.SlotList, m.Types = nil, nil, nil, nil
	}
	slices.SortFunc(members, func(x, y contract.Member) int {
		return cmp.Or(strings.Compare(y.State, x.State), byName(x, y))
	})
	page := b.counted(list)
	types := sumTypes(page.Items)
	s.Alarms = append(s.Alarms, b.aboutTypes(types, slots)...)
	if more := len(s.Alarms) - statusAlarms; more > 0 {
		s.Alarms, s.Notes = s.Alarms[:statusAlarms], append(s.Notes, fmt.Sprintf("%d further alarms are left out", more))
	}
	s.PendingAge, s.Types = page.PendingAge, types[:min(len(types), statusTypes)]
	s.MoreTypes = len(types) - len(s.Types)
	return s
}

// sumTypes adds up the rows of each type. Slots of dispatchers that did not answer count, too, as far as heartbeats know them. The type
// that waits longest is first.
func sumTypes(rows []contract.Type) []contract.TypeStatus {
	slices.SortFunc(rows, func(x, y contract.Type) int { return strings.Compare(x.Type, y.Type) })
	types, slots := []contract.TypeStatus{}, 0
	for _, r := range rows {
		if len(types) == 0 || types[len(types)-1].Type != r.Type {
			types, slots = append(types, contract.TypeStatus{Type: r.Type, Pending: r.Pending, Pause: r.Pause}), 0
		}
		t := &types[len(types)-1]
		slots += r.Capacity
		t.Slots, t.Known, t.Oldest = max(t.Slots, slots, r.Capacity+r.OtherSlots), max(t.Known, r.Known), max(t.Oldest, r.Oldest, r.OldestKeyed)
		t.Free, t.Requests = t.Free+r.Free, t.Requests+r.Requests
	}
	slices.SortStableFunc(types, func(x, y contract.TypeStatus) int { return cmp.Compare(y.Oldest, x.Oldest) })
	return types
}

// remedies say what to do about troubles in tables.
var remedies = map[string]string{
	"schedule_refused":    "schedule %s: %s; 'dispatcherd schedule set' corrects it",
	contract.FlowSetAside: "%s is set aside: %s; 'dispatcherd flow repair' or 'batch repair' continues it",
}

// alarmsOf returns the alarms about a dispatcher, and those that it knows.
func alarmsOf(m *contract.Member) []contract.Alarm {
	var troubles [][3]string
	_ = json.Unmarshal(m.Troubles, &troubles) // absent of the others
	alarms, silence := slices.Clone(m.Alarms), time.Duration(m.HeartbeatAge)*time.Second
	for _, t := range troubles {
		alarms = append(alarms, contract.Alarm{Kind: t[0], About: t[1], Text: fmt.Sprintf(remedies[t[0]], t[1], t[2])})
	}
	switch {
	case m.State == contract.LostDispatcher:
		return []contract.Alarm{{Kind: "dispatcher_lost", About: m.Name, Text: fmt.Sprintf(
			"dispatcher %s is lost: its last heartbeat was %v ago; others take over its jobs", m.Name, silence)}}
	case m.Lives() && !m.Answered:
		alarms = append(alarms, contract.Alarm{Kind: "dispatcher_silent", About: m.Name, Text: fmt.Sprintf(
			"dispatcher %s does not answer; its last heartbeat was %v ago", m.Name, silence)})
	}
	return alarms
}

// aboutTypes returns the alarms about types without a slot, and about those of which a job waits longer than the overtaking window.
func (b *Backend) aboutTypes(types []contract.TypeStatus, slots []contract.Slot) (alarms []contract.Alarm) {
	for _, t := range types {
		waiting, _ := t.Waiting()
		oldest := time.Duration(t.Oldest) * time.Second
		kind, text := "no_slot", fmt.Sprintf("%d waiting, the oldest for %v, and no slot supports the type: %s", waiting, oldest,
			cmp.Or(drainedOf(slots, t.Type), "start a worker for it"))
		if t.Slots > 0 {
			kind, text = "beyond_window", fmt.Sprintf("the oldest job has waited %v, longer than W (%v): it needs more slots", oldest, b.Window)
		}
		if waiting > 0 && t.Pause == nil && (t.Slots == 0 || b.Window > 0 && oldest > b.Window) {
			alarms = append(alarms, contract.Alarm{Kind: kind, About: t.Type, Text: fmt.Sprintf("type %q: %s", t.Type, text)})
		}
	}
	return alarms
}
