package cli

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/dispatcherd/dispatcherd/client"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/exit"
	"github.com/dispatcherd/dispatcherd/internal/httpapi/rest"
)

// TypeCommand is the group of commands about one type.
func (a *Invocation) TypeCommand() *cobra.Command {
	return a.APIGroup("type", "Pause or resume a type", a.typePauseCommand(), a.typeResumeCommand())
}

const typePauseLong = `Pauses a type in the whole cluster: none of its jobs starts. Running jobs continue. Jobs can be inserted, keep
their age, and start after "type resume", or when the pause ends. A request is refused at once if it cannot
start before its timeout. A second pause replaces the first one.`

func (a *Invocation) typePauseCommand() *cobra.Command {
	var queued, requests bool
	var length time.Duration
	var order client.PauseOrder
	cmd := New("pause TYPE", "Pause a type",
		"  dispatcherd type pause pdf --for 1h --reason 'the converter is upgraded'\n  dispatcherd type pause pdf --queued")
	cmd.Long = typePauseLong
	flags := cmd.Flags()
	flags.BoolVar(&queued, "queued", false, "pause only queued jobs")
	flags.BoolVar(&requests, "requests", false, "pause only on-demand requests")
	Number(flags, &length, "for", "1ms", "8784h", "length of the pause (default: until it is resumed)")
	flags.StringVar(&order.Reason, "reason", "", "why, at most 1,000 bytes")
	return a.OnAPI(cmd, func(ctx context.Context, args []string) error {
		switch {
		case queued && requests:
			return exit.Usagef("give --queued or --requests, or neither to pause both")
		case queued:
			order.What = contract.PauseQueued
		case requests:
			order.What = contract.PauseRequests
		}
		if flags.Changed("for") {
			order.For = new(contract.Duration(length))
		}
		p, err := a.client.PauseType(ctx, args[0], order)
		if err != nil {
			return err
		}
		if p.Warning != "" {
			a.Say("Warning: %s.", p.Warning)
		}
		if p.Former != nil {
			a.Say("This replaces a pause: %s.", p.Former.Text())
		}
		a.sayUnconfirmed(p.Unconfirmed)
		return a.PrintLine("pause", p, "type "+p.Type+": "+pauseText(&p.Pause))
	})
}

// pauseText says what is paused, by whom, until when and why.
func pauseText(p *contract.Pause) string {
	if p == nil {
		return ""
	}
	return When(p.What != contract.PauseAll, "%s: ", p.What) + p.Text()
}

// sayUnconfirmed names dispatchers that do not follow a change yet.
func (a *Invocation) sayUnconfirmed(names []string) {
	if len(names) > 0 {
		a.Say("Not confirmed by %s: a dispatcher follows the change when Postgres answers it.", strings.Join(names, ", "))
	}
}

func (a *Invocation) typeResumeCommand() *cobra.Command {
	cmd := New("resume TYPE", "End the pause of a type", "  dispatcherd type resume pdf")
	return a.OnAPI(cmd, func(ctx context.Context, args []string) error {
		unconfirmed, err := a.client.ResumeType(ctx, args[0])
		if err != nil {
			return err
		}
		a.sayUnconfirmed(unconfirmed)
		return a.PrintLine("resumed", map[string]string{"type": args[0]}, "type "+args[0]+" resumed")
	})
}

const workerDrainLong = `Drains a worker: it gets no more jobs. Running jobs continue. WORKER is a name, which means all workers with
this name, or the number of a session of the dispatcher that is asked, which means its process only.
A worker stays drained when it connects again, here or elsewhere, until "worker resume" or until no
dispatcher has had it for five minutes.`

// WorkerDrainCommands are the commands that drain and resume workers.
func (a *Invocation) WorkerDrainCommands() []*cobra.Command {
	var wait bool
	var order client.DrainOrder
	drain := New("drain WORKER", "Stop placing jobs on a worker",
		"  dispatcherd worker drain render-1 --wait\n  dispatcherd worker drain 17 --types pdf,excel --reason 'new fonts'")
	drain.Long = workerDrainLong
	flags := drain.Flags()
	flags.StringSliceVar(&order.Types, "types", nil, "only these types (default: all)")
	flags.StringVar(&order.Reason, "reason", "", "why, at most 1,000 bytes")
	flags.BoolVar(&wait, "wait", false, "return when no job of these types runs there")
	drain.ValidArgsFunction = cobra.NoFileCompletions
	drain.RunE = func(cmd *cobra.Command, args []string) error {
		d, err := a.client.DrainWorker(cmd.Context(), args[0], order)
		if err != nil {
			return err
		}
		if d.Former != nil {
			a.Say("It was drained before, by %s at %s.", d.Former.By, Stamp(d.Former.At))
		}
		if len(d.Uncovered) > 0 {
			a.Say("No slot of the cluster supports %s any more.", strings.Join(d.Uncovered, ", "))
		}
		a.sayUnconfirmed(d.Unconfirmed)
		for wait && (d.Running > 0 || len(d.Unconfirmed) > 0) {
			if d, err = a.drained(cmd.Context(), d); err != nil {
				return err
			}
		}
		return a.PrintLine("drain", d, "worker "+d.Worker+" drained: "+Counted(d.Sessions, "session")+", "+Counted(d.Running, "running job"))
	}
	resume := a.OnAPI(New("resume WORKER", "Let a drained worker get jobs again", "  dispatcherd worker resume render-1"),
		func(ctx context.Context, args []string) error {
			unconfirmed, err := a.client.ResumeWorker(ctx, args[0])
			if err != nil {
				return err
			}
			a.sayUnconfirmed(unconfirmed)
			return a.PrintLine("resumed", map[string]string{"worker": args[0]}, "worker "+args[0]+" resumed")
		})
	var q rest.Query
	list := List(a, New("drains", "List drained workers by name", "  dispatcherd worker drains\n  dispatcherd worker drains -o jsonl"),
		"/v1/drains", &q, &q, "worker, process, types, by, at, reason, sessions, running", func(d *contract.DrainState) []any {
			types := strings.Join(d.Types, ", ") + When(len(d.Types) == 0, "all")
			return []any{d.Worker, d.Process, types, d.By, Stamp(d.At), d.Reason, d.Sessions, d.Running}
		}, "No worker is drained.")
	for _, cmd := range []*cobra.Command{drain, resume, list} {
		a.APIFlags(cmd)
	}
	return []*cobra.Command{drain, resume, list}
}

// lookPause is the time between two looks at a worker that is drained; dispatchers say what runs there with each heartbeat.
const lookPause = time.Second

// drained returns, after a pause, what still runs at a drained worker. A worker that is resumed meanwhile is an error.
func (a *Invocation) drained(ctx context.Context, d client.DrainState) (client.DrainState, error) {
	select {
	case <-ctx.Done():
		return d, ctx.Err()
	case <-time.After(lookPause):
	}
	q := client.Query{Limit: 1000}
	for {
		p, err := a.client.Drains(ctx, q)
		if err != nil {
			return d, err
		}
		at := slices.IndexFunc(p.Items, func(o client.DrainState) bool { return o.Worker == d.Worker && o.Process == d.Process })
		switch {
		case at >= 0:
			return p.Items[at], nil
		case p.Next == "":
			return d, exit.Errorf(exit.Conflict, "worker %s was resumed, or has no process left", d.Worker)
		}
		q.Cursor = p.Next
	}
}
