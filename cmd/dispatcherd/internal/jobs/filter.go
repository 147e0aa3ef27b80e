package jobs

import (
	"slices"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/cmd/dispatcherd/internal/settings"
	"github.com/dispatcherd/dispatcherd/internal/exit"
	"github.com/dispatcherd/dispatcherd/internal/httpapi"
)

// jobFilter are the flags that select jobs.
type jobFilter struct {
	kind, status string
	newer, older time.Duration
}

// filterFlags are the names of the flags of jobFilter.
var filterFlags = []string{"type", "status", "newer-than", "older-than"}

// register adds the flags. The help lists the allowed statuses.
func (f *jobFilter) register(a commands, cmd *cobra.Command, which string) {
	flags := cmd.Flags()
	a.typeFlag(cmd, &f.kind, "only jobs of this type")
	flags.StringVar(&f.status, "status", "", "only jobs in this status: "+which)
	flags.DurationVar(&f.newer, "newer-than", 0, "only jobs created in this time before now, such as 1h")
	flags.DurationVar(&f.older, "older-than", 0, "only jobs created longer ago")
	settings.Between(flags, "1s", settings.Longest, "newer-than", "older-than")
	names := make([]string, len(dispatcherd.Statuses))
	for i, s := range dispatcherd.Statuses {
		names[i] = string(s)
	}
	_ = cmd.RegisterFlagCompletionFunc("status", // fails for an unknown flag only
		cobra.FixedCompletions(names, cobra.ShellCompDirectiveNoFileComp))
}

func (f *jobFilter) given(flags *pflag.FlagSet) bool {
	return slices.ContainsFunc(filterFlags, flags.Changed)
}

// filter checks the flags. Ages count from now.
func (f *jobFilter) filter(now time.Time) (httpapi.JobFilter, error) {
	c := httpapi.JobFilter{Type: f.kind}
	if s := dispatcherd.Status(f.status); s != "" {
		if !slices.Contains(dispatcherd.Statuses, s) {
			return c, exit.Usagef("--status %q is none of waiting, pending, running, done, failed, cancelled", f.status)
		}
		c.Status = []dispatcherd.Status{s}
	}
	if f.newer > 0 {
		c.Newer.Time = now.Add(-f.newer)
	}
	if f.older > 0 {
		c.Older.Time = now.Add(-f.older)
	}
	return c, nil
}
