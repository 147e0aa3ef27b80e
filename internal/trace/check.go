package trace

import (
	"errors"
	"fmt"
	"slices"
)

// Check puts a trace into its canonical order, which Simulate needs, and returns an error if a trace with
// well-formed lines cannot be played. The causes are: there are no jobs or no slots; the events of a slot do
// not alternate; a session is empty; a job can never run, because the last slot of its type goes offline before
// the job arrives.
func (t *Trace) Check() error {
	t.sort()
	switch {
	case len(t.Slots) == 0:
		return errors.New("there is no slot")
	case len(t.Jobs) == 0:
		return errors.New("there is no job")
	}
	if err := t.checkSessions(); err != nil {
		return err
	}
	return t.checkCover()
}

// checkSessions requires that register and drain of every slot alternate. At one
// instant drains come first, so an empty session is found as a drain of a slot that
// is offline.
func (t *Trace) checkSessions() error {
	online := map[int64]bool{}
	for _, e := range t.Events {
		if online[e.Slot] == (e.Kind == Register) {
			return fmt.Errorf("%s: at %s s slot %d gets the event %s, but it is %s then; its events must alternate, and a session must last",
				eventsFile, formatSeconds(e.AtMS), e.Slot, e.Kind, map[bool]string{true: "on line", false: "off line"}[online[e.Slot]])
		}
		online[e.Slot] = e.Kind == Register
	}
	return nil
}

// checkCover returns an error if no slot supports the type of a job at the
// arrival of the job or later.
func (t *Trace) checkCover() error {
	offlineAt := map[int64]int64{} // slot → time at which it finally goes offline
	for _, s := range t.Slots {
		offlineAt[s.ID] = 0
	}
	for _, e := range t.Registrations() {
		offlineAt[e.Slot] = e.AtMS
		if e.Kind == Register {
			offlineAt[e.Slot] = maxMS + 1
		}
	}
	last := map[string]int64{} // type → end of the time in which some slot supports it
	for _, s := range t.Slots {
		for _, typ := range s.Types {
			last[typ] = max(last[typ], offlineAt[s.ID])
		}
	}
	i := slices.IndexFunc(t.Jobs, func(j Job) bool { return last[j.Type] <= j.ArrivalMS })
	if i >= 0 {
		j := t.Jobs[i]
		return fmt.Errorf("%s: job %d of type %s arrives at %s s, but the last slot that supports it goes offline at %s s; it could never run",
			jobsFile, j.ID, j.Type, formatSeconds(j.ArrivalMS), formatSeconds(last[j.Type]))
	}
	return nil
}
