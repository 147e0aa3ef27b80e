package jobs

import (
	"fmt"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/dispatcherd/dispatcherd/cmd/dispatcherd/internal/console"
	"github.com/dispatcherd/dispatcherd/internal/contract"
)

func (a commands) getCommand() *cobra.Command {
	return &cobra.Command{
		Use: "get ID", Short: "Print all facts about a job",
		Example: "  dispatcherd job get 17\n  dispatcherd job get 17 -o json | jq .job.result",
		Args:    oneID,
		RunE: func(cmd *cobra.Command, args []string) error {
			ids, err := jobIDs(args)
			if err != nil {
				return err
			}
			jobs, done, err := a.openJobs(cmd.Context())
			if err != nil {
				return err
			}
			defer done()
			job, err := jobs.Get(cmd.Context(), ids[0])
			if err != nil {
				return err
			}
			if a.Format.JSON {
				return a.PrintJSON("job", job)
			}
			return a.printJob(&job)
		},
	}
}

// printJob writes one fact per line, and the failed attempts last.
func (a commands) printJob(job *contract.Job) error {
	w := tabwriter.NewWriter(a.Out, 0, 0, 2, ' ', 0)
	line := func(name, value string) {
		if value != "" {
			fmt.Fprintf(w, "%s\t%s\n", name, console.OneLine(value))
		}
	}
	line("id", strconv.FormatInt(int64(job.ID), 10))
	line("type", job.Type)
	line("status", string(job.Status))
	line("priority", strconv.Itoa(int(job.Priority)))
	line("created at", stamp(job.CreatedAt))
	line("run at", stamp(job.RunAt))
	line("started at", stampOrNone(job.StartedAt))
	line("finished at", stampOrNone(job.FinishedAt))
	line("attempt", strconv.Itoa(int(job.Attempt)))
	line("failures", fmt.Sprintf("%d of at most %d", job.Failures, job.MaxAttempts))
	line("crashes", strconv.Itoa(job.Crashes))
	if job.TimeoutMS != nil {
		line("timeout", (time.Duration(*job.TimeoutMS) * time.Millisecond).String())
	}
	if job.Dispatcher != nil {
		line("dispatcher", strconv.Itoa(*job.Dispatcher))
	}
	line("payload", string(job.Payload))
	line("progress", string(job.Progress))
	line("result", string(job.Result))
	for _, end := range badEnds(job) {
		line(fmt.Sprintf("attempt %d", end.Attempt), stamp(end.At)+" "+end.text())
	}
	return w.Flush()
}

// text returns how the attempt ended, without repeating the outcome.
func (e *badEnd) text() string {
	return e.Outcome + ": " + strings.TrimPrefix(e.Error, e.Outcome+": ")
}
