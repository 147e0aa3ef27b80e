package jobs

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/cmd/dispatcherd/internal/ask"
	"github.com/dispatcherd/dispatcherd/cmd/dispatcherd/internal/console"
	"github.com/dispatcherd/dispatcherd/cmd/dispatcherd/internal/settings"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/exit"
	"github.com/dispatcherd/dispatcherd/internal/httpapi"
)

const jobInsertLong = `Inserts one job described by flags and prints its id, or a stream of jobs, one JSON object per line,
from a file or standard input ("-"):

  {"type": "pdf", "priority": 5, "payload": {"page": 1}, "run_at": "2026-01-31T08:00:00Z"}

Fields: type (required), priority, payload, run_at, max_attempts, timeout_ms, expected_ms, keys, parent, unique_key, each
at most once. One bad line, or a unique_key that another job has, rejects the whole stream; --skip-bad omits only the bad lines.
If another job has the key of --unique-key, the command inserts nothing and prints the id of that job.`

// insertFlags are the flags of `job insert`.
type insertFlags struct {
	kind                 string
	priority             int8
	payload, payloadFile string
	runAt                string
	maxAttempts          int16
	timeout, expected    time.Duration
	keys                 string
	parent               int64
	uniqueKey            string
	uniqueFor            time.Duration
	skipBad              bool
}

func (a commands) insertCommand() *cobra.Command {
	var f insertFlags
	job := pflag.NewFlagSet("", pflag.ContinueOnError) // flags that describe a single job
	cmd := &cobra.Command{
		Use:        "insert [FILE | -]",
		SuggestFor: []string{"add", "create", "enqueue", "submit"},
		Short:      "Insert one job, or a stream of JSON lines",
		Long:       jobInsertLong,
		Args:       settings.Arguments(0, 1, "at most one file"),
		Example: `  dispatcherd job insert --type pdf --priority 5 --payload '{"page": 1}'
  dispatcherd job insert jobs.jsonl
  zcat jobs.jsonl.gz | dispatcherd job insert --skip-bad -`,
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if len(args) == 0 {
				return a.insertOne(cmd, f)
			}
			job.VisitAll(func(flag *pflag.Flag) {
				if flag.Changed && err == nil {
					err = exit.Errorf(exit.Usage, "--%s describes a single job, but %s is a stream of jobs: give one of the two", flag.Name, args[0])
				}
			})
			if err != nil {
				return err
			}
			return a.insertStream(cmd.Context(), args[0], f.skipBad)
		},
	}
	job.SortFlags = false
	job.StringVar(&f.kind, "type", "", "type that a slot must support")
	job.Int8Var(&f.priority, "priority", 0, "0..10; a larger number is more urgent")
	job.StringVar(&f.payload, "payload", "", "JSON for the worker")
	job.StringVar(&f.payloadFile, "payload-file", "", "file with the payload; - is standard input")
	job.StringVar(&f.runAt, "run-at", "", "earliest start: a time (RFC 3339) or a duration from now, such as 90s")
	job.Int16Var(&f.maxAttempts, "max-attempts", 0, "failures after which the job is failed for good (default: 5)")
	job.DurationVar(&f.timeout, "timeout", 0, "limit of one attempt (default: none)")
	job.DurationVar(&f.expected, "expected", 0, "how long an attempt probably takes (default: unknown)")
	job.StringVar(&f.keys, "keys", "", "1 to 4 words KEY, KEY*COST or KEY*all")
	job.Int64Var(&f.parent, "parent", 0, "open batch whose member the job is")
	job.StringVar(&f.uniqueKey, "unique-key", "", "insert nothing if a pending or running job has this key")
	job.DurationVar(&f.uniqueFor, "unique-for", 0, "time for which the unique key stays taken, also after the job has ended")
	settings.Between(job, "0", "10", "priority")
	settings.Between(job, "1", strconv.Itoa(math.MaxInt16), "max-attempts")
	settings.Between(job, settings.ShortestTimeout.String(), settings.LongestTimeout.String(), "timeout", "expected")
	settings.Between(job, "1", settings.LargestID, "parent")
	settings.Between(job, "1s", settings.Longest, "unique-for")
	flags := cmd.Flags()
	flags.AddFlagSet(job)
	flags.BoolVar(&f.skipBad, "skip-bad", false, "skip bad lines of a stream instead of inserting nothing")
	_ = cmd.RegisterFlagCompletionFunc("type", a.completeTypes()) // fails for an unknown flag only
	return cmd
}

// insertOne inserts the job that the flags describe. Flags that are not given
// select the column's default.
func (a commands) insertOne(cmd *cobra.Command, f insertFlags) error {
	job, err := a.jobFromFlags(cmd, f)
	if err != nil {
		return err
	}
	inserted, err := ask.Call[httpapi.Inserted](cmd.Context(), &a.API, http.MethodPost, "/v1/jobs", job)
	if err != nil {
		return err
	}
	count := 1
	if inserted.Existing {
		count = 0
		a.Say("Job %d has the unique key; nothing was inserted.", inserted.ID)
	}
	return a.PrintLine("inserted", map[string]any{"count": count, "ids": []dispatcherd.JobID{inserted.ID}}, fmt.Sprint(inserted.ID))
}

// jobFromFlags returns the JSON object of the job. The dispatcher checks the values.
func (a commands) jobFromFlags(cmd *cobra.Command, f insertFlags) (map[string]any, error) {
	changed := cmd.Flags().Changed
	if !changed("type") {
		return nil, exit.Errorf(exit.Usage, "no job is described: give --type, or a file of JSON lines, or - for standard input")
	}
	if changed("payload") && changed("payload-file") {
		return nil, exit.Errorf(exit.Usage, "--payload and --payload-file both give the payload: give one of the two")
	}
	job := map[string]any{}
	for flag, value := range map[string]any{
		"type": f.kind, "priority": f.priority, "max-attempts": f.maxAttempts, "keys": f.keys, "parent": f.parent, "unique-key": f.uniqueKey,
		"unique-for": contract.Duration(f.uniqueFor),
	} {
		if changed(flag) {
			job[strings.ReplaceAll(flag, "-", "_")] = value
		}
	}
	if changed("timeout") {
		job["timeout_ms"] = f.timeout.Milliseconds()
	}
	if changed("expected") {
		job["expected_ms"] = f.expected.Milliseconds()
	}
	var err error
	if changed("run-at") {
		job["run_at"], err = parseWhen(f.runAt, time.Now())
	}
	switch {
	case err != nil:
	case changed("payload"):
		job["payload"], err = checkedJSON([]byte(f.payload))
	case changed("payload-file"):
		job["payload"], err = a.readPayload(f.payloadFile)
	}
	return job, err
}

// readPayload reads a payload from a file, or from standard input for "-".
func (a commands) readPayload(name string) (json.RawMessage, error) {
	text, err := a.ReadFile(name, maxPayload)
	if err != nil {
		return nil, err
	}
	return checkedJSON(text)
}

func checkedJSON(text []byte) (json.RawMessage, error) {
	err := ask.CheckJSON("the payload", text)
	if err != nil {
		err = exit.Errorf(exit.Usage, "%w; a plain text needs quotation marks inside: '\"text\"'", err)
	}
	return text, err
}

// parseWhen parses a time, or a duration from now.
func parseWhen(s string, now time.Time) (time.Time, error) {
	if at, err := time.Parse(time.RFC3339Nano, s); err == nil {
		return at, nil
	}
	d, err := time.ParseDuration(s)
	if err == nil && d < 0 {
		return time.Time{}, exit.Errorf(exit.Usage,
			"--run-at %s lies in the past: give a duration from now such as 90s; a job without --run-at is due at once", s)
	}
	if err != nil {
		return time.Time{}, exit.Errorf(exit.Usage, "--run-at %q is neither a time such as 2026-01-31T08:00:00Z nor a duration such as 90s", s)
	}
	return now.Add(d), nil
}

// maxPayload bounds a payload in bytes before it is sent. The bound of the dispatcher is --max-payload.
const maxPayload = 16 << 20

// insertStream inserts a stream of jobs in one transaction.
func (a commands) insertStream(ctx context.Context, name string, skipBad bool) error {
	in, err := a.OpenFile(name)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }() // it is only read
	path, prefix := "/v1/jobs", ""
	if skipBad {
		path, prefix = path+"?on_error=skip", "skipping "
	}
	uploaded, err := a.API.Upload(ctx, path, in)
	for i := range uploaded.Problems {
		a.Say("%sline %d: %s", prefix, uploaded.Problems[i].Line, uploaded.Problems[i].Detail)
	}
	bad := console.Counted(int64(uploaded.Bad), "bad line")
	switch {
	case err != nil && uploaded.Bad > 0:
		return exit.Errorf(exit.Usage, "%s; nothing was inserted (--skip-bad skips bad lines)", bad)
	case err != nil:
		return err
	case uploaded.Bad > 0 && !a.Format.JSON:
		a.Say("%s skipped", bad)
	}
	count := uploaded.Inserted
	return a.PrintLine("inserted", map[string]any{"count": count, "skipped": uploaded.Bad}, console.Counted(count, "job")+" inserted")
}
