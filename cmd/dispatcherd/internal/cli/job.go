package cli

import (
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/exit"
)

// JobCommand is the group of commands about jobs.
func (a *Invocation) JobCommand() *cobra.Command {
	return a.APIGroup("job", "Insert, list, explain, follow, retry or cancel jobs", a.jobInsertCommand(), a.jobListCommand(),
		a.jobGetCommand(), a.jobWhyCommand(), a.jobRequestsCommand(), a.jobFollowCommand(), a.jobWaitCommand(), a.jobRetryCommand(),
		a.jobCancelCommand())
}

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

// stampOrNone is Stamp for an optional time.
func stampOrNone(t *time.Time) string {
	if t == nil {
		return ""
	}
	return Stamp(*t)
}

// shorten shortens a text for a table. It does not divide a rune.
func shorten(s string, most int) string {
	if runes := []rune(s); len(runes) > most {
		return string(runes[:most-1]) + "…"
	}
	return s
}
