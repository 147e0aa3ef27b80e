package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/spf13/cobra"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/exit"
	"github.com/dispatcherd/dispatcherd/internal/httpapi/rest"
)

func (a *Invocation) jobGetCommand() *cobra.Command {
	return a.onJob(New("get ID", "Print all facts about a job",
		"  dispatcherd job get 17\n  dispatcherd job get 17 -o json | jq .job.result"), false,
		func(ctx context.Context, id dispatcherd.JobID) error {
			job, err := Call[contract.Job](ctx, a, http.MethodGet, rest.JobPath(id), nil)
			if err != nil {
				return err
			}
			return PrintFacts(a, "job", &job, addJob)
		})
}

// onJob completes a command about the job that its argument names, or with requests also about a request in memory.
func (a *Invocation) onJob(cmd *cobra.Command, requests bool, do func(ctx context.Context, id dispatcherd.JobID) error) *cobra.Command {
	cmd.ValidArgsFunction = a.completeIDs()
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		ids, err := jobIDs(args, requests)
		if err != nil {
			return err
		}
		return a.about(ids[0], do(cmd.Context(), ids[0]))
	}
	return cmd
}

// about explains an error, and names the job that a dispatcher does not have.
func (a *Invocation) about(id dispatcherd.JobID, err error) error {
	explained := a.Explain(err)
	switch {
	case !IsMissing(err):
	case id.OnDemand():
		return exit.Errorf(exit.NotFound, "request %d is not in memory: it was answered, or this dispatcher never had it", id)
	case strings.HasPrefix(explained.Error(), "no such job"): // not the callback of a batch
		return exit.Errorf(exit.NotFound, "job %d: %w", id, explained)
	}
	return explained
}

// addJob adds the facts about a job, the log and the failed attempts last.
func addJob(add Add, job *contract.Job) {
	columns := *job
	columns.Log, columns.Errors, columns.AdmittedTo, columns.DispatcherName, columns.Worker = nil, nil, nil, nil, nil
	columns.Dispatcher, columns.Waited, columns.Ran = nil, nil, nil
	add.Fields(columns)
	if job.DispatcherName != nil || job.Dispatcher != nil {
		add("dispatcher", "%s", cmp.Or(deref(job.DispatcherName), goneDispatcher))
	}
	if job.Placement != nil {
		addPlacement(add, job.Placement)
	} else {
		add.Some("worker", job.Worker)
		add.Some("waited", durationText(job.Waited))
		add.Some("ran", durationText(job.Ran))
	}
	lines := func(fact, before, text string) {
		for line := range strings.SplitSeq(strings.TrimRight(text, "\n"), "\n") {
			add(fact, "%s%s", before, line)
			fact, before = "", ""
		}
	}
	var log string
	if json.Unmarshal(job.Log, &log) == nil && log != "" {
		lines("log", "", log)
	}
	var p *contract.Placement // of the last attempt that ended badly
	ended := 0                // its number
	for _, end := range job.BadEnds() {
		where := ""
		if p, ended = end.Placement, end.Attempt; p != nil {
			where = fmt.Sprintf(" on %s slot %d, waited %v, ran %v:", p.Worker, p.Slot, spanOf(p.Waited), spanOf(p.Ran))
		}
		lines(fmt.Sprintf("attempt %d", end.Attempt), "ended "+Stamp(end.At)+where+" ", end.String())
	}
	if job.Status == dispatcherd.Pending && p != nil && p.Backoff != "" {
		add("next attempt", "%d of %d at %s, because %s", job.Failures+1, job.MaxAttempts, Stamp(job.RunAt), p.Backoff)
	}
	last := int(job.Attempt)
	if job.StartedAt != nil && ended < last && job.Status != dispatcherd.Pending {
		at := "started " + Stamp(*job.StartedAt)
		if job.FinishedAt != nil {
			at = "ended " + Stamp(*job.FinishedAt)
		}
		add(fmt.Sprintf("attempt %d", last), "%s%s, waited %s, ran %s: %s", at, When(job.Worker != nil, " on %s", deref(job.Worker)),
			durationText(job.Waited), durationText(job.Ran), job.Status)
	}
}

// goneDispatcher stands for the name of a dispatcher without a row.
const goneDispatcher = "one that is gone"

// deref returns the text of a pointer, "" without one.
func deref(text *string) string {
	if text == nil {
		return ""
	}
	return *text
}

// durationText formats optional seconds.
func durationText(seconds *float64) string {
	if seconds == nil {
		return ""
	}
	return span(spanOf(*seconds))
}

// addPlacement adds where and why there the last attempt ran.
func addPlacement(add Add, p *contract.Placement) {
	add("worker", "%s, slot %d", p.Worker, p.Slot)
	add("waited", "%v%s%s", spanOf(p.Waited),
		When(p.Permits > 0, ", of this %v for permits", spanOf(p.Permits)), When(p.WaitedFor != "", ", longest for: %s", p.WaitedFor))
	add("ran", "%v", spanOf(p.Ran))
	s := p.Score
	add("score", "%.0f = base %.0f + age %.0f + rarity %.0f%s", s.Base+s.Age+s.Rarity+s.Brevity, s.Base, s.Age, s.Rarity, brevity(s.Brevity))
}
