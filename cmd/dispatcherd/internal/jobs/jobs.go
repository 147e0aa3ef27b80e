// Package jobs contains the commands about jobs and slots.
//
// The commands ask a dispatcher over its API.
package jobs

import (
	"encoding/json"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/cmd/dispatcherd/internal/console"
	"github.com/dispatcherd/dispatcherd/cmd/dispatcherd/internal/settings"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/exit"
)

// Command is the group of commands about jobs.
func Command(invocation *settings.Invocation) *cobra.Command {
	a := commands{invocation}
	return a.APIGroup("job", "Insert, list, explain, follow, retry or cancel jobs", a.insertCommand(), a.listCommand(),
		a.getCommand(), a.whyCommand(), a.requestsCommand(), a.followCommand(), a.waitCommand(), a.retryCommand(),
		a.cancelCommand())
}

// commands holds the invocation that the commands use.
type commands struct{ *settings.Invocation }

// jobIDs parses the ids of a command line, with those of requests in memory if requests is set.
func jobIDs(args []string, requests bool) ([]dispatcherd.JobID, error) {
	ids := make([]dispatcherd.JobID, len(args))
	for i, arg := range args {
		n, err := strconv.ParseInt(arg, 10, 64)
		if err != nil || n == 0 || n < 0 && !requests {
			rule := "ids are numbers from 1"
			if requests {
				rule += ", those of on-demand requests from -1 down"
			}
			return nil, exit.Usagef("%q is not the id of a job: %s", arg, rule)
		}
		ids[i] = dispatcherd.JobID(n)
	}
	return ids, nil
}

// when returns a text if a condition holds, else "".
var when = console.When

// stampOrNone is console.Stamp for an optional time.
func stampOrNone(t *time.Time) string {
	if t == nil {
		return ""
	}
	return console.Stamp(*t)
}

// badEnd is one entry of a job's errors.
type badEnd struct {
	Attempt   int                 `json:"attempt"`
	At        time.Time           `json:"at"`
	Outcome   string              `json:"outcome"`
	Error     string              `json:"error"`
	Placement *contract.Placement `json:"placement"` // nil if the attempt did not start
}

// badEnds parses a job's errors, the latest last. It skips entries that it cannot parse,
// because the result is only displayed.
func badEnds(job *contract.Job) []badEnd {
	var ends []badEnd
	_ = json.Unmarshal(job.Errors, &ends)
	return ends
}

// shorten shortens a text for a table. It does not divide a rune.
func shorten(s string, most int) string {
	if runes := []rune(s); len(runes) > most {
		return string(runes[:most-1]) + "…"
	}
	return s
}
