package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/client"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/exit"
)

const requestLong = `Runs a job now and waits for its result: an on-demand request. Prints partial output and the
result as JSON lines, and progress on the error output. -o jsonl prints all events. The exit
code is 0 if the job is done, 1 if it failed, was cancelled or is late, 5 if no slot supports
the type. An interrupt cancels the request.`

// RequestCommand makes an on-demand request.
func (a *Invocation) RequestCommand() *cobra.Command {
	var r client.Request
	var priority int
	var file string
	cmd := New("request TYPE [PAYLOAD | -]", "Run a job now and wait for its result", `  dispatcherd request pdf '{"page": 1}'
  dispatcherd request pdf --payload-file page.json --timeout 2m --wait-for-worker 10s
  echo '{"page": 1}' | dispatcherd request pdf - -o jsonl`, requestLong)
	cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
		if len(args) == 2 && cmd.Flags().Changed("payload-file") {
			return exit.Usagef("PAYLOAD and --payload-file both give the payload: give one of the two")
		}
		r.Type, r.Priority = args[0], dispatcherd.Priority(priority)
		switch {
		case len(args) == 2 && args[1] != "-":
			r.Payload, err = checkedJSON([]byte(args[1]))
		case len(args) == 2 || file != "":
			r.Payload, err = a.readPayload(cmp.Or(file, "-"))
		}
		if err != nil {
			return err
		}
		r.LocalOnly = cmd.Flags().Changed("durable") && !r.Durable
		result, err := a.client.Stream(cmd.Context(), r, a.showEvent)
		if err != nil {
			return a.suggestType(cmd.Context(), r.Type, err)
		}
		return a.showResult(result)
	}
	flags := cmd.Flags()
	flags.StringVar(&file, "payload-file", "", "file with the payload; - is standard input")
	Number(flags, &priority, "priority", "0", "10", "0..10; a larger number is more urgent")
	Number(flags, &r.Timeout, "timeout", "1ms", "1h", "how long to wait for the result (default: the dispatcher's, 30s)")
	Number(flags, &r.WaitForWorker, "wait-for-worker", "0s", "1h", "how long to wait while no slot supports the type")
	flags.BoolVar(&r.Durable, "durable", false, "write the request to Postgres first, so it survives the dispatcher; =false: never do so")
	flags.StringVar(&r.Keys, "keys", "", "keys as for job insert; only with --durable")
	Number(flags, &r.Expected, "expected", ShortestAttempt, LongestAttempt, "how long an attempt probably takes (default: unknown)")
	flags.StringVar(&r.Traceparent, "traceparent", "", "W3C trace context, for the worker")
	flags.StringVar(&r.IdempotencyKey, "idempotency-key", "", "a repeated request with the same key gets the same answer")
	a.OverClient(cmd)
	types := a.completeTypes()
	cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return types(cmd, args, begun)
	}
	return cmd
}

// showResult prints the result of a job that is done.
func (a *Invocation) showResult(result json.RawMessage) error {
	switch {
	case a.Format == "jsonl":
		return a.PrintValue(streamEvent{"result", result})
	case a.JSON():
		return a.PrintJSON("result", result)
	}
	return a.PrintValue(result)
}

// streamEvent is one line of the output with -o jsonl.
type streamEvent struct {
	Event string          `json:"event"`
	Data  json.RawMessage `json:"data"`
}

// showEvent prints partial output and reports other events. With -o jsonl it prints every
// event. A document (-o json) contains the result only.
func (a *Invocation) showEvent(e client.Event) error {
	switch {
	case a.Format == "jsonl":
		return a.PrintValue(streamEvent{e.Name, e.Data})
	case e.Name == "partial" && !a.JSON():
		return a.PrintValue(e.Data)
	case e.Name != "partial":
		a.Say("%s", eventText(e))
	}
	return nil
}

// eventText describes an event in one line.
func eventText(e client.Event) string {
	var d struct {
		Rank    int     `json:"rank"`
		Waiting int     `json:"waiting"`
		Slot    int64   `json:"slot"`
		Worker  string  `json:"worker"`
		Done    float64 `json:"done"`
		Total   float64 `json:"total"`
		Message string  `json:"message"`
		Level   string  `json:"level"`
		Missed  int     `json:"missed"`
		Status  string  `json:"status"`
		Attempt int     `json:"attempt"`
		Via     string  `json:"via"`
	}
	if json.Unmarshal(e.Data, &d) != nil { // progress may be any JSON
		return e.Name + ": " + string(e.Data)
	}
	switch e.Name {
	case "queued":
		return fmt.Sprintf("queued: %d of %d waiting jobs of the type", d.Rank, d.Waiting) +
			When(d.Via != "", "; served through the queue by another dispatcher")
	case "started":
		return fmt.Sprintf("started on slot %d of %s", d.Slot, d.Worker)
	case "gap":
		return fmt.Sprintf("%d events were missed", d.Missed)
	case "status":
		return fmt.Sprintf("%s, attempt %d", d.Status, d.Attempt)
	case "progress":
		return fmt.Sprintf("progress: %g", d.Done) + When(d.Total > 0, " of %g", d.Total) + When(d.Message != "", ", %s", d.Message)
	case "log":
		return d.Level + ": " + d.Message
	}
	return e.Name + ": " + string(e.Data)
}

// explainEnd adds the exit code to the error that ended a request. A job that ran and did not
// succeed has the code of a negative answer.
func explainEnd(err error) error {
	if p, ok := errors.AsType[*client.Problem](err); ok {
		switch p.Type {
		case client.TypeJobFailed, client.TypeJobCancelled, client.TypeDeadlinePassed:
			return exit.Errorf(exit.Negative, "%s", p.Error())
		}
	}
	return err
}

// suggestType explains the error that ended a request. If no slot supports the type, it adds the type with a slot that may be meant.
func (a *Invocation) suggestType(ctx context.Context, typ string, err error) error {
	explained := a.Explain(explainEnd(err))
	p, ok := errors.AsType[*client.Problem](err)
	if !ok || p.Type != client.TypeNoSlot {
		return explained
	}
	types, err := Page[contract.TypePage](ctx, a, "/v1/types", local(LargestPage))
	var names []string
	for _, t := range types.Items {
		if t.Capacity+t.OtherSlots > 0 {
			names = append(names, t.Type)
		}
	}
	near := Nearest(typ, names)
	if err != nil || near == "" { // the first error is more important
		return explained
	}
	return exit.Errorf(exit.CodeOf(ctx, explained), "%w (did you mean %s?)", explained, OneLine(near))
}
