package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/dispatcherd/dispatcherd/client"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/exit"
	"github.com/dispatcherd/dispatcherd/internal/schedule"
)

func (a *Invocation) scheduleListCommand() *cobra.Command {
	var q client.Query
	return List(a, New("list", "List schedules by name",
		"  dispatcherd schedule list\n  dispatcherd schedule list --limit 50 -o jsonl"), "schedules", &q, &q,
		"name, kind, plan, type, overlap, state", func(v *contract.Schedule) []any {
			return []any{v.Name, v.Kind, plan(v), v.Type, v.Overlap, state(v)}
		}, "There are no schedules: create one, for example with 'dispatcherd schedule set nightly spec=@daily type=report'")
}

// plan says when a schedule runs.
func plan(v *contract.Schedule) string {
	switch v.Kind {
	case contract.Cron:
		return v.Spec + " " + v.TimeZone
	case contract.Interval:
		return "every " + v.Every.String()
	case contract.Startup:
		if v.Once == contract.OnceEver {
			return "once"
		}
		return "once per " + v.Once
	}
	return "once per worker"
}

// state says whether a schedule runs.
func state(v *contract.Schedule) string {
	switch {
	case v.Error != "":
		return "error: " + v.Error
	case v.EndsAt != nil && !v.EndsAt.After(v.ReadAt):
		return "ended"
	case v.Paused:
		return "paused"
	}
	return "active"
}

// Ticks of `schedule show`: those printed, and those searched for the last skipped one.
const (
	shownTicks    = 10
	searchedTicks = 200
)

func (a *Invocation) scheduleShowCommand() *cobra.Command {
	cmd := New("show NAME", "Print a schedule, its last ticks, and the reason of the last skip",
		"  dispatcherd schedule show nightly\n  dispatcherd schedule show nightly -o json")
	return a.OnAPI(cmd, func(ctx context.Context, args []string) error {
		return a.showSchedule(ctx, a.client.Schedules(), args[0])
	})
}

// shown is a schedule and its last ticks, the newest first.
type shown struct {
	contract.Schedule

	Ticks    []contract.Tick `json:"ticks"`
	LastSkip *contract.Tick  `json:"last_skip,omitempty"`
}

func (a *Invocation) showSchedule(ctx context.Context, s client.Schedules, name string) error {
	v, err := s.Get(ctx, name)
	if err != nil {
		return err
	}
	page, err := s.Ticks(ctx, name, client.Query{Limit: searchedTicks})
	if err != nil {
		return err
	}
	ticks := page.Items
	all := shown{Schedule: v, Ticks: append([]contract.Tick{}, ticks[:min(len(ticks), shownTicks)]...)}
	if i := slices.IndexFunc(ticks, func(t contract.Tick) bool { return t.Outcome == contract.TickSkipped }); i >= 0 {
		all.LastSkip = &ticks[i]
	}
	return PrintFacts(a, "schedule", &all, addSchedule)
}

func addSchedule(add Add, v *shown) {
	add.Fields(v.Schedule)
	add("state", "%s", state(&v.Schedule))
	add.Some("waits", ahead(&v.Schedule))
	for i := range v.Ticks {
		add("tick "+v.Ticks[i].Occasion, "%s", tickText(&v.Ticks[i]))
	}
	if v.LastSkip != nil {
		add("last skip", "%s: %s", v.LastSkip.Occasion, v.LastSkip.Reason)
	}
}

// tickText says what became of an occasion.
func tickText(t *contract.Tick) string {
	switch {
	case t.Outcome == contract.TickMissed:
		return Counted(t.Missed, "occasion") + " missed"
	case t.Job == nil && t.Reason != "":
		return t.Outcome + ": " + t.Reason
	case t.Job == nil:
		return t.Outcome
	}
	text := fmt.Sprintf("job %d %s", *t.Job, cmp.Or(t.Status, "removed"))
	if t.StartedAt != nil && t.FinishedAt != nil {
		text += fmt.Sprintf(" after %v", t.FinishedAt.Sub(*t.StartedAt).Round(time.Millisecond))
	}
	return text
}

func (a *Invocation) scheduleNextCommand() *cobra.Command {
	n := 10
	cmd := New("next NAME", "Print the next occasions in UTC and local time, with changes of the wall clock",
		"  dispatcherd schedule next nightly -n 5")
	cmd.Flags().IntVarP(&n, "count", "n", n, "occasions")
	bind(cmd.Flags().Lookup("count"), "1", "1000")
	return a.OnAPI(cmd, func(ctx context.Context, args []string) error {
		v, err := a.client.Schedules().Get(ctx, args[0])
		if err != nil {
			return err
		}
		return a.showNext(&v, n)
	})
}

// skew is by how much the clock of the database may differ from what the controller takes it for.
const skew = time.Second

// ahead says that a schedule does not run because its high-water mark is in the future.
func ahead(v *contract.Schedule) string {
	if v.Handled == nil || !v.Handled.After(v.ReadAt.Add(skew)) {
		return ""
	}
	return fmt.Sprintf(
		"the database clock was set back, and all occasions up to %s are handled; remove and create the schedule to run it earlier",
		Stamp(*v.Handled),
	)
}

// showNext prints the next occasions of a schedule.
func (a *Invocation) showNext(v *contract.Schedule, n int) error {
	list, err := schedule.Upcoming(&v.SchedulePlan, v.After(), n)
	if err != nil {
		return exit.Errorf(exit.Conflict, "%w", err)
	}
	err = PrintRows(a, "next", list, "utc, local, run at, note", func(o *contract.Occasion) []any {
		return []any{Stamp(o.At), o.Local.Format("Mon 2006-01-02 15:04:05 MST"), Stamp(o.RunAt), o.Note}
	})
	if err != nil {
		return err
	}
	if state := state(v); state != "active" && state != "ended" {
		a.Say("The schedule does not run now: %s.", state)
	}
	if text := ahead(v); text != "" {
		a.Say("The schedule does not run now: %s.", text)
	}
	if len(list) == 0 {
		a.Say("There is no further occasion.")
	}
	return nil
}
