package jobs

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/cmd/dispatcherd/internal/ask"
	"github.com/dispatcherd/dispatcherd/internal/contract"
)

func (a commands) getCommand() *cobra.Command {
	var at ask.Dispatcher
	cmd := &cobra.Command{
		Use: "get ID", SuggestFor: []string{"show", "status", "describe"}, Short: "Print all facts about a job",
		Example: "  dispatcherd job get 17\n  dispatcherd job get 17 -o json | jq .job.result",
		Args:    oneID,
		RunE: func(cmd *cobra.Command, args []string) error {
			ids, err := jobIDs(args, false)
			if err != nil {
				return err
			}
			job, err := remote{&at}.get(cmd.Context(), ids[0])
			if err != nil {
				return err
			}
			return a.PrintFacts("job", job, func(add func(fact, format string, args ...any)) { addJob(add, &job) })
		},
	}
	a.APIFlags(cmd.Flags(), &at)
	cmd.ValidArgsFunction = a.completeIDs(&at)
	return cmd
}

// addJob adds the facts about a job, the failed attempts last. It omits facts without a value.
func addJob(add func(fact, format string, args ...any), job *contract.Job) {
	add("id", "%d", job.ID)
	add("type", "%s", job.Type)
	add("status", "%s", job.Status)
	add("priority", "%d", job.Priority)
	add("created at", "%s", stamp(job.CreatedAt))
	if job.FirstRunAt != nil {
		add("first run at", "%s", stamp(*job.FirstRunAt))
	}
	add("run at", "%s", stamp(job.RunAt))
	optional := func(fact, value string) {
		if value != "" {
			add(fact, "%s", value)
		}
	}
	optional("started at", stampOrNone(job.StartedAt))
	optional("finished at", stampOrNone(job.FinishedAt))
	add("attempt", "%d", job.Attempt)
	add("failures", "%d of at most %d", job.Failures, job.MaxAttempts)
	add("crashes", "%d", job.Crashes)
	if job.TimeoutMS != nil {
		add("timeout", "%v", time.Duration(*job.TimeoutMS)*time.Millisecond)
	}
	if job.ExpectedMS != nil {
		add("expected", "%v", time.Duration(*job.ExpectedMS)*time.Millisecond)
	}
	if job.Keys != nil {
		add("keys", "%s", *job.Keys)
	}
	if job.Fence != nil {
		add("fence", "%d", *job.Fence)
	}
	if job.Dispatcher != nil {
		add("dispatcher", "%d", *job.Dispatcher)
	}
	if job.Placement != nil {
		addPlacement(add, job.Placement)
	}
	if job.Cancelled != nil {
		add(cancelFact(job.Status), "%s", *job.Cancelled)
	}
	optional("payload", string(job.Payload))
	optional("progress", string(job.Progress))
	optional("result", string(job.Result))
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
	for _, end := range badEnds(job) {
		lines(fmt.Sprintf("attempt %d", end.Attempt), fmt.Sprintf("%s%s ", stamp(end.At), end.where()), end.text())
	}
}

// addPlacement adds where and why there the last attempt ran.
func addPlacement(add func(fact, format string, args ...any), p *contract.Placement) {
	add("worker", "%s, slot %d", p.Worker, p.Slot)
	waitedFor := ""
	if p.WaitedFor != "" {
		waitedFor = ", longest for: " + p.WaitedFor
	}
	add("waited", "%v%s", spanOf(p.Waited), waitedFor)
	add("ran", "%v", spanOf(p.Ran))
	s := p.Score
	brevity := ""
	if s.Brevity != 0 {
		brevity = fmt.Sprintf(" + brevity %.0f", s.Brevity)
	}
	add("score", "%.0f = base %.0f + age %.0f + rarity %.0f%s", s.Base+s.Age+s.Rarity+s.Brevity, s.Base, s.Age, s.Rarity, brevity)
}

// cancelFact names the fact of who cancels a job.
func cancelFact(s dispatcherd.Status) string {
	if s == dispatcherd.Running {
		return "being cancelled by"
	}
	return "cancelled by"
}

// where says where the attempt ran, if it is known.
func (e *badEnd) where() string {
	if e.Placement == nil {
		return ""
	}
	return fmt.Sprintf(" on %s slot %d after %v:", e.Placement.Worker, e.Placement.Slot, spanOf(e.Placement.Ran))
}

// text returns how the attempt ended, without repeating the outcome.
func (e *badEnd) text() string {
	return e.Outcome + ": " + strings.TrimPrefix(e.Error, e.Outcome+": ")
}
