package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/client"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/exit"
	"github.com/dispatcherd/dispatcherd/internal/httpapi"
)

const jobInsertLong = `Inserts one job described by flags, or a stream of jobs, one JSON object per line, from a file
or standard input ("-"), and prints the ids:

  {"type": "pdf", "priority": 5, "payload": {"page": 1}, "run_at": "2026-01-31T08:00:00Z"}

Fields: type (required), priority, payload, run_at, max_attempts, timeout_ms, expected_ms,
keys, parent, unique_key, traceparent, backoff, each at most once. One bad line rejects the
whole stream. With --skip-bad only the bad lines are left out. A unique_key that another job
has rejects the whole stream in any case. If another job has the key of --unique-key, the
command inserts nothing and prints the id of that job.`

func (a *Invocation) jobInsertCommand() *cobra.Command {
	var skipBad, quiet bool
	job := pflag.NewFlagSet("", pflag.ContinueOnError) // flags that describe a single job
	cmd := New("insert [FILE | -]", "Insert one job, or a stream of JSON lines",
		`  dispatcherd job insert --type pdf --priority 5 --payload '{"page": 1}'
  dispatcherd job insert jobs.jsonl
  zcat jobs.jsonl.gz | dispatcherd job insert --skip-bad -`, jobInsertLong)
	cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
		if len(args) == 0 {
			return a.insertOne(cmd.Context(), job)
		}
		job.VisitAll(func(flag *pflag.Flag) {
			if flag.Changed && err == nil {
				err = exit.Usagef("--%s describes a single job, but %s is a stream of jobs: give one of the two", flag.Name, args[0])
			}
		})
		if err != nil {
			return err
		}
		return a.insertStream(cmd.Context(), args[0], skipBad, quiet)
	}
	job.SortFlags = false
	job.String("type", "", "type that a slot must support")
	Number(job, new(int), "priority", "0", "10", "0..10; a larger number is more urgent")
	job.String("payload", "", "JSON for the worker")
	job.String("payload-file", "", "file with the payload; - is standard input")
	job.String("run-at", "", "earliest start: a time (RFC 3339) or a duration from now, such as 90s")
	Number(job, new(int), "max-attempts", "1", MostAttempts, "failures after which the job has failed for good (default: of its type, or 5)")
	job.String("backoff", "", "wait after a failure, such as exponential:1s,2,1h,0.2 (default: as its type says)")
	Number(job, new(time.Duration), "timeout", ShortestAttempt, LongestAttempt, "limit of one attempt (default: none)")
	Number(job, new(time.Duration), "expected", ShortestAttempt, LongestAttempt, "how long an attempt probably takes (default: unknown)")
	job.String("keys", "", "1 to 4 words KEY, KEY*COST or KEY*all")
	Number(job, new(int64), "parent", "1", LargestID, "id of an open batch; the job becomes a member of it")
	job.String("unique-key", "", "insert nothing if a pending or running job has this key")
	Number(job, new(time.Duration), "unique-for", "1s", Longest, "time for which the unique key stays taken, also after the job has ended")
	job.String("traceparent", "", "W3C trace context, for the worker")
	flags := cmd.Flags()
	flags.AddFlagSet(job)
	flags.BoolVar(&quiet, "quiet", false, "print the number of the jobs of a stream instead of their ids")
	flags.BoolVar(&skipBad, "skip-bad", false, "skip bad lines of a stream instead of inserting nothing")
	_ = cmd.RegisterFlagCompletionFunc("type", a.completeTypes()) // fails for an unknown flag only
	return cmd
}

// insertOne inserts the job that flags describe. Flags that are not given
// select the column's default.
func (a *Invocation) insertOne(ctx context.Context, flags *pflag.FlagSet) error {
	job, err := a.jobFromFlags(flags)
	if err != nil {
		return err
	}
	inserted, err := Call[httpapi.Inserted](ctx, a, http.MethodPost, "/v1/jobs", job)
	if err != nil {
		return err
	}
	count := 1
	if inserted.Existing {
		count = 0
		a.Say("Job %d has the unique key; nothing was inserted.", inserted.ID)
	}
	return a.PrintLine("inserted", map[string]any{"count": count, "ids": []dispatcherd.JobID{inserted.ID}}, "%d", inserted.ID)
}

// jobFromFlags returns the JSON object of the job. The dispatcher checks the values.
func (a *Invocation) jobFromFlags(flags *pflag.FlagSet) (job map[string]any, err error) {
	changed := func(name string) bool { return flags.Lookup(name).Changed }
	if !changed("type") {
		return nil, exit.Usagef("no job is described: give --type, or a file of JSON lines, or - for standard input")
	}
	if changed("payload") && changed("payload-file") {
		return nil, exit.Usagef("--payload and --payload-file both give the payload: give one of the two")
	}
	job = map[string]any{}
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Changed && err == nil {
			var member string
			var value any
			member, value, err = a.memberOf(f.Name, f.Value.String())
			job[member] = value
		}
	})
	return job, err
}

// memberOf returns the member of a job that a flag describes.
func (a *Invocation) memberOf(flag, text string) (member string, value any, err error) {
	member, value = strings.ReplaceAll(flag, "-", "_"), text
	switch flag {
	case "priority", "max-attempts", "parent":
		value = json.Number(text)
	case "timeout", "expected":
		var d time.Duration
		d, err = contract.ParseDuration(text)
		member, value = member+"_ms", d.Milliseconds()
	case "run-at":
		member, value, err = parseWhen(text)
	case "payload":
		value, err = checkedJSON([]byte(text))
	case "payload-file":
		member = "payload"
		value, err = a.readPayload(text)
	}
	return member, value, err
}

// readPayload reads a payload from a file, or from standard input for "-".
func (a *Invocation) readPayload(name string) (json.RawMessage, error) {
	text, err := a.ReadFile(name, maxPayload)
	if err != nil {
		return nil, err
	}
	return checkedJSON(text)
}

func checkedJSON(text []byte) (json.RawMessage, error) {
	err := CheckJSON("the payload", text)
	if err != nil {
		err = exit.Usagef("%w; a plain text needs quotation marks inside: '\"text\"'", err)
	}
	return text, err
}

// parseWhen returns the member for a time, or for a duration from now. The dispatcher adds it to the clock of Postgres.
func parseWhen(s string) (member string, value any, err error) {
	if at, err := time.Parse(time.RFC3339Nano, s); err == nil {
		return "run_at", at, nil
	}
	d, err := contract.ParseDuration(s)
	if err != nil || d < 0 {
		return "", nil, exit.Usagef("--run-at %q is neither a time such as 2026-01-31T08:00:00Z nor a duration from now such as 90s; "+
			"without it, the job is due at once", s)
	}
	return "run_in", contract.Duration(d), nil
}

// maxPayload bounds a payload in bytes before it is sent. The bound of the dispatcher is --max-payload.
const maxPayload = 16 << 20

// insertStream inserts a stream of jobs in one transaction.
func (a *Invocation) insertStream(ctx context.Context, name string, skipBad, quiet bool) error {
	in, err := a.OpenFile(name)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }() // it is only read
	path, prefix := fmt.Sprintf("/v1/jobs?ids=%t", !quiet), ""
	if skipBad {
		path, prefix = path+"&on_error=skip", "skipping "
	}
	var uploaded httpapi.Uploaded
	answer, err := a.Do(ctx, http.MethodPost, path, http.Header{"Content-Type": {"application/x-ndjson"}}, in)
	if err == nil {
		err = json.Unmarshal(answer, &uploaded)
	}
	if p, ok := errors.AsType[*client.Problem](err); ok { // with the bad lines that reject them all
		uploaded.Bad, uploaded.Problems = p.Bad, p.Problems
	}
	for i := range uploaded.Problems {
		a.Say("%sline %d: %s", prefix, uploaded.Problems[i].Line, uploaded.Problems[i].Detail)
	}
	bad := Counted(uploaded.Bad, "bad line")
	switch {
	case err != nil && uploaded.Bad > 0:
		return exit.Usagef("%s; nothing was inserted (--skip-bad skips bad lines)", bad)
	case err != nil:
		return err
	case uploaded.Bad > 0 && !a.JSON():
		a.Say("%s skipped", bad)
	}
	for _, w := range uploaded.Warnings {
		a.warn(w)
	}
	count, text := uploaded.Inserted, Counted(uploaded.Inserted, "job")+" inserted"
	value := map[string]any{"count": count, "skipped": uploaded.Bad}
	if !quiet && count > 0 {
		if value["ids"] = uploaded.IDs; !a.JSON() {
			a.Say("%s", text)
		}
		text = strings.Trim(strings.ReplaceAll(fmt.Sprint(uploaded.IDs), " ", "\n"), "[]")
	}
	return a.PrintLine("inserted", value, "%s", text)
}
