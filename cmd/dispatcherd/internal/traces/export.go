package traces

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/claim"
	"github.com/dispatcherd/dispatcherd/cmd/dispatcherd/internal/cli"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/dsn"
	"github.com/dispatcherd/dispatcherd/internal/exit"
	"github.com/dispatcherd/dispatcherd/internal/httpapi/rest"
	"github.com/dispatcherd/dispatcherd/internal/trace"
)

// maxExported bounds the jobs of an exported trace, which are held in memory.
const maxExported = "5000000"

// exportFlags are the flags of an export.
type exportFlags struct {
	since time.Duration
	until time.Duration
	limit int
	of    *cli.Invocation
	slots string // folder of the trace whose slots to use
	force bool
}

func (a commands) exportCommand() *cobra.Command {
	f := exportFlags{since: 30 * 24 * time.Hour, limit: 1_000_000, of: a.Invocation}
	cmd := &cobra.Command{
		Use: "export DIR", Short: "Write ended jobs as a trace",
		Long: `Writes the jobs that were done or failed in the last --since as a trace to DIR: due time, type,
priority and duration of the last execution, without contents. The slots come from the
dispatcher of this host, or from another trace. On-demand requests without rows are not
included.`,
		Example: "  dispatcherd trace export /tmp/month --since 720h\n" +
			"  dispatcherd trace simulate /tmp/month --weights default --weights priority=2048",
		RunE: func(cmd *cobra.Command, args []string) error { return a.exportTrace(cmd.Context(), &f, args[0]) },
	}
	flags := cmd.Flags()
	f.periodFlags(flags)
	forceFlag(flags, &f.force)
	a.DatabaseFlag(flags)
	return cmd
}

// periodFlags are the flags that choose jobs and slots.
func (f *exportFlags) periodFlags(flags *pflag.FlagSet) {
	cli.Number(flags, &f.since, "since", "0s", cli.Longest, "start of the period, before now")
	cli.Number(flags, &f.until, "until", "0s", cli.Longest, "end of the period, before now")
	cli.Number(flags, &f.limit, "limit", "1", maxExported, "largest number of jobs; with more the command fails")
	flags.StringVar(&f.slots, "slots-of", "", "folder of the trace whose slots to use")
	cli.OnlyOnCommandLine(flags)
}

// forceFlag lets a command replace a trace.
func forceFlag(flags *pflag.FlagSet, force *bool) {
	flags.BoolVar(force, "force", false, "replace an existing trace")
	cli.OnlyOnCommandLine(flags)
}

// writeTrace stores a trace. It returns a usage error if another dir avoids the error. An
// error such as a full disk is not a usage error.
func writeTrace(t *trace.Trace, dir string) error {
	err := t.Write(dir)
	if err == nil || errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, syscall.EIO) {
		return err
	}
	return exit.Usagef("%w; choose another folder than %s", err, dir)
}

// mayWriteTrace returns an error if dir cannot be a folder, or contains a trace that must not
// be replaced. It is called before the work begins.
func mayWriteTrace(dir string, force bool) error {
	for place := filepath.Clean(dir); ; place = filepath.Dir(place) { // until a path exists
		info, err := os.Stat(place)
		if errors.Is(err, os.ErrNotExist) && place != filepath.Dir(place) {
			continue
		}
		if err == nil && !info.IsDir() {
			err = fmt.Errorf("%s is a file", place)
		}
		if err != nil {
			return exit.Usagef("the trace cannot be written to %s: %w; choose another folder", dir, err)
		}
		break
	}
	if force {
		return nil
	}
	return cli.MustBeNew(dir+" holds a trace", trace.Files(dir)...)
}

func (a commands) exportTrace(ctx context.Context, f *exportFlags, dir string) error {
	if err := mayWriteTrace(dir, f.force); err != nil {
		return err
	}
	t, omitted, err := a.past(ctx, f)
	if err != nil {
		return err
	}
	if err := writeTrace(t, dir); err != nil {
		return err
	}
	a.Say("%s for %s written to %s", cli.Counted(len(t.Jobs), "job"), cli.Counted(len(t.Slots), "slot"), dir)
	if omitted != "" {
		a.Say("%s", omitted)
	}
	return nil
}

// past reads the jobs that ended in a period as a trace. omitted says which jobs have no slot.
func (a commands) past(ctx context.Context, f *exportFlags) (t *trace.Trace, omitted string, err error) {
	if f.since <= f.until {
		return nil, "", exit.Usagef("--since is %v, must be longer ago than --until (%v)", f.since, f.until)
	}
	t = &trace.Trace{}
	err = a.OverAPI(func() (err error) {
		t.Slots, t.Events, err = f.slotsFor(ctx)
		return err
	})
	if err != nil {
		return nil, "", err
	}
	pool, err := a.connect(ctx)
	if err != nil {
		return nil, "", err
	}
	defer pool.Close()
	jobs := claim.Jobs{DB: pool}
	now, err := jobs.Clock(ctx)
	if err != nil {
		return nil, "", err
	}
	past, err := jobs.History(ctx, now.Add(-f.since), now.Add(-f.until), f.limit+1)
	if err != nil {
		return nil, "", err
	}
	if len(past) > f.limit {
		return nil, "", exit.Errorf(
			exit.Conflict,
			"more than %d jobs ended in that time: shorten it with --since and --until, or raise --limit",
			f.limit,
		)
	}
	left := fillTrace(t, past)
	if len(t.Jobs) == 0 {
		return nil, "", f.noJobs(int64(len(past)), left)
	}
	if err := t.Check(); err != nil {
		return nil, "", exit.Errorf(exit.NotFound, "these jobs are not a valid trace: %w", err)
	}
	if len(left) > 0 {
		omitted = fmt.Sprintf(
			"%s omitted because no slot supports them: %s",
			cli.Counted(int64(len(past)-len(t.Jobs)), "job"),
			strings.Join(left, ", "),
		)
	}
	return t, omitted, nil
}

// connectTimeout bounds the wait for a database that does not answer.
const connectTimeout = 10 * time.Second

// connect opens a small pool on the database and checks that it answers.
func (a commands) connect(ctx context.Context) (*pgxpool.Pool, error) {
	url, err := a.DatabaseURL()
	if err != nil {
		return nil, err
	}
	config, err := dsn.Parse(url)
	if err != nil {
		return nil, exit.Usagef("database-url: %w", err)
	}
	config.MaxConns = 2 // commands run one statement at a time
	dsn.Session{Patience: connectTimeout}.Apply(config.ConnConfig)
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, exit.Errorf(exit.Unavailable, "database: %w", err)
	}
	if err := pool.Ping(ctx); err != nil {
		pool.Close()
		return nil, err
	}
	return pool, nil
}

// noJobs explains why there is nothing to export: no job ended, or no slot supports the types
// of the ended jobs.
func (f *exportFlags) noJobs(ended int64, left []string) error {
	if ended == 0 {
		return exit.Errorf(exit.NotFound, "no job ended in that time (--since, --until)")
	}
	whose := "the dispatcher on " + f.of.API.String()
	if f.slots != "" {
		whose = "the trace " + f.slots
	}
	return exit.Errorf(
		exit.NotFound,
		"%s ended in that time, but no slot of %s supports the types: %s; give another --api-socket, or --slots-of",
		cli.Counted(ended, "job"),
		whose,
		strings.Join(left, ", "),
	)
}

// slotsFor returns the slots of the trace, and their online times if they are known.
func (f *exportFlags) slotsFor(ctx context.Context) ([]trace.Slot, []trace.SlotEvent, error) {
	if f.slots != "" {
		other, err := trace.Load(f.slots)
		if err != nil {
			return nil, nil, exit.Usagef("--slots-of: %w", err)
		}
		return other.Slots, other.Events, nil
	}
	var slots []trace.Slot
	for q := (rest.Slots{Query: rest.Query{Limit: cli.LargestPage}, Scope: rest.Scope{Local: true}}); ; {
		page, err := cli.Page[contract.Page[contract.Slot]](ctx, f.of, "/v1/slots", q)
		if err != nil {
			return nil, nil, err
		}
		for _, s := range page.Items {
			name := fmt.Sprintf("%s/%d", s.Worker, s.Session)
			slots = append(slots, trace.Slot{ID: int64(len(slots) + 1), Worker: name, Types: slices.Sorted(slices.Values(s.Types))})
		}
		if q.Cursor = page.Next; q.Cursor == "" {
			break
		}
	}
	if len(slots) == 0 {
		return nil, nil, exit.Errorf(exit.NotFound, "no slot is online at the dispatcher on %s: start the workers, or give --slots-of", &f.of.API)
	}
	return slots, nil, nil
}

// fillTrace adds the jobs that some slot supports, with times from the first arrival on, and
// returns the types of the others.
func fillTrace(t *trace.Trace, past []claim.Past) (left []string) {
	types := t.Types()
	unsupported := map[string]bool{}
	var first time.Time
	for i := range past {
		if first.IsZero() || past[i].RunAt.Before(first) {
			first = past[i].RunAt
		}
	}
	for i := range past {
		p := &past[i]
		if _, ok := slices.BinarySearch(types, p.Type); !ok {
			unsupported[p.Type] = true
			continue
		}
		t.Jobs = append(t.Jobs, trace.Job{
			ID: int64(p.ID), Type: p.Type, Priority: p.Priority, Mode: dispatcherd.Queued,
			ArrivalMS: p.RunAt.Sub(first).Milliseconds(), DurationMS: max(p.Finished.Sub(p.Started).Milliseconds(), 1), ExpectedMS: p.Expected,
		})
	}
	return slices.Sorted(maps.Keys(unsupported))
}
