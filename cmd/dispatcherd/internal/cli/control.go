package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/dispatcherd/dispatcherd/client"
	"github.com/dispatcherd/dispatcherd/internal/background"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/exit"
	"github.com/dispatcherd/dispatcherd/internal/httpapi/rest"
)

// TypeCommand is the group of commands about one type.
func (a *Invocation) TypeCommand() *cobra.Command {
	return a.APIGroup("type", "Pause or resume a type, or set how its failed jobs are retried", a.typePauseCommand(), a.typeSetCommand(),
		a.resumeCommand("type", "End the pause of a type", "pdf", (*client.Client).ResumeType))
}

const typePauseLong = `Pauses a type in the whole cluster: none of its jobs starts. Running jobs continue. Jobs can be
inserted, keep their age, and start after "type resume", or when the pause ends. A request is
refused at once if it cannot start before its timeout. A second pause replaces the first one.`

func (a *Invocation) typePauseCommand() *cobra.Command {
	var queued, requests bool
	var length time.Duration
	var order client.PauseOrder
	cmd := New("pause TYPE", "Pause a type",
		"  dispatcherd type pause pdf --for 1h --reason 'the converter is upgraded'\n  dispatcherd type pause pdf --queued", typePauseLong)
	flags := cmd.Flags()
	flags.BoolVar(&queued, "queued", false, "pause only queued jobs")
	flags.BoolVar(&requests, "requests", false, "pause only on-demand requests")
	Number(flags, &length, "for", "1ms", "8784h", "length of the pause (default: until it is resumed)")
	flags.StringVar(&order.Reason, "reason", "", "why, at most 1,000 bytes")
	return a.OnAPI(cmd, func(ctx context.Context, args []string) error {
		switch { // both mean all
		case queued && !requests:
			order.What = contract.PauseQueued
		case requests && !queued:
			order.What = contract.PauseRequests
		}
		if flags.Changed("for") {
			order.For = new(contract.Duration(length))
		}
		p, err := a.client.PauseType(ctx, args[0], order)
		if err != nil {
			return err
		}
		a.sayChange(p.Warning, p.Former, p.Unconfirmed)
		return a.PrintLine("pause", p, "type %s paused: %s", p.Type, pauseText(&p.Pause))
	})
}

// pauseText says what is paused, by whom, until when and why.
func pauseText(p *contract.Pause) string {
	if p == nil {
		return ""
	}
	return When(p.What != contract.PauseAll, "%s, ", p.What) + strings.TrimPrefix(p.Text(), "Paused ")
}

// sayChange says what is doubtful about a change, whose setting it replaces, and which dispatchers do not follow it yet.
func (a *Invocation) sayChange(warning, former string, unconfirmed []string) {
	if warning != "" {
		a.warn(warning)
	}
	if former != "" {
		a.Say("This replaces what was set by %s.", former)
	}
	if len(unconfirmed) > 0 {
		a.Say("Not confirmed by %s: a dispatcher follows the change when Postgres answers it.", strings.Join(unconfirmed, ", "))
	}
}

// namedOrder is a method of the client that needs only a name. It returns the dispatchers that do not follow the change yet.
type namedOrder func(*client.Client, context.Context, string) (unconfirmed []string, err error)

// orderCommand completes a command that gives an order about a type, worker or dispatcher.
func (a *Invocation) orderCommand(cmd *cobra.Command, what, did string, give namedOrder) *cobra.Command {
	return a.OnAPI(cmd, func(ctx context.Context, args []string) error {
		unconfirmed, err := give(a.client, ctx, args[0])
		if err != nil {
			return err
		}
		a.sayChange("", "", unconfirmed)
		return a.printDone(did, what, what, args[0])
	})
}

// printDone says what was done with an object. member names it in JSON.
func (a *Invocation) printDone(did, what, member, name string) error {
	return a.PrintLine(did, map[string]string{member: name}, "%s %s %s", what, name, did)
}

// resumeCommand is the command that resumes a type, worker or dispatcher.
func (a *Invocation) resumeCommand(what, short, example string, resume namedOrder) *cobra.Command {
	cmd := New("resume "+strings.ToUpper(what), short, "  dispatcherd "+what+" resume "+example)
	return a.orderCommand(cmd, what, "resumed", resume)
}

const typeSetLong = `Sets the retry policy of a type in the whole cluster, for jobs without a policy of their own.
The policy is used when an attempt fails. It replaces the former policy: what is not given is
the default again. With --backoff "" alone, the type has no policy any more.`

func (a *Invocation) typeSetCommand() *cobra.Command {
	var p client.RetryPolicy
	cmd := New("set TYPE", "Set how often, and after which waits, failed jobs of a type are retried",
		"  dispatcherd type set pdf --max-attempts 8 --backoff exponential:1s,2,1h,0.2\n  dispatcherd type set mail --backoff list:1m,10m,1h",
		typeSetLong)
	flags := cmd.Flags()
	Number(flags, &p.MaxAttempts, "max-attempts", "1", MostAttempts, "failures after which a job is failed for good (default: 5)")
	flags.StringVar(&p.Backoff, "backoff", "", "wait after a failure (default: exponential by --retry-base and --retry-max)")
	return a.OnAPI(cmd, func(ctx context.Context, args []string) error {
		if p == (client.RetryPolicy{}) && !flags.Changed("backoff") {
			return exit.Usagef("nothing is given: give --max-attempts or --backoff; --backoff '' alone ends the policy")
		}
		s, err := a.client.SetRetries(ctx, args[0], p)
		if err != nil {
			return err
		}
		a.sayChange(s.Warning, "", s.Unconfirmed)
		return a.PrintLine("retries", s, "type %s: %s", s.Type, retriesText(&s.RetryPolicy))
	})
}

// retriesText describes the retry policy of a type.
func retriesText(p *contract.RetryPolicy) string {
	if p == nil {
		return ""
	}
	return fmt.Sprintf("%d attempts, %s", cmp.Or(p.MaxAttempts, contract.DefaultMaxAttempts), cmp.Or(p.Backoff, "backoff of the dispatcher"))
}

const workerDrainLong = `Drains a worker: it gets no more jobs. Running jobs continue. WORKER is a name, which means all
workers with this name, or the number of a session of the dispatcher that is asked, which means
its process only. A worker stays drained when it connects again, here or elsewhere, until
"worker resume" or until no dispatcher has had it for five minutes.`

// WorkerDrainCommands are the commands that drain and resume workers.
func (a *Invocation) WorkerDrainCommands() []*cobra.Command {
	var wait bool
	var order client.DrainOrder
	drain := New("drain WORKER", "Stop placing jobs on a worker",
		"  dispatcherd worker drain render-1 --wait\n  dispatcherd worker drain 17 --types pdf,excel --reason 'new fonts'", workerDrainLong)
	flags := drain.Flags()
	flags.StringSliceVar(&order.Types, "types", nil, "only these types (default: all)")
	flags.StringVar(&order.Reason, "reason", "", "why, at most 1,000 bytes")
	flags.BoolVar(&wait, "wait", false, "return when no job of these types runs there; alone it keeps a drain of all types that is there")
	drain.ValidArgsFunction = cobra.NoFileCompletions
	drain.RunE = func(cmd *cobra.Command, args []string) (err error) {
		var d client.DrainState
		if flags.Changed("types") && len(order.Types) == 0 { // an unset variable must not drain the whole worker
			return exit.Usagef("--types names no type: name some, or leave it out for all")
		}
		if wait && order.Reason == "" && order.Types == nil { // it only waits for a drain of all types that is there
			if d, err = a.drainOf(cmd.Context(), args[0], args[0]+"/"); err != nil {
				return err
			}
		}
		if d.Worker == "" || len(d.Types) > 0 {
			if d, err = a.client.DrainWorker(cmd.Context(), args[0], order); err != nil {
				return err
			}
			if len(d.Uncovered) > 0 {
				a.Say("No slot of the cluster supports %s any more.", strings.Join(d.Uncovered, ", "))
			}
			a.sayChange(d.Warning, d.Former, d.Unconfirmed)
		}
		if wait {
			if err := a.awaitDrain(cmd.Context(), &d); err != nil {
				return err
			}
		}
		return a.PrintLine("drain", d, "worker %s drained%s", d.Worker,
			When(wait, ", and no job%s runs there", When(len(d.Types) > 0, " of these types")))
	}
	var q rest.Names
	list := List(a, New("drains", "List drained workers by name", "  dispatcherd worker drains\n  dispatcherd worker drains -o jsonl"),
		"drains", &q, &q.Query, "worker, process, types, by, at, reason, dispatchers, running", func(d *contract.DrainState) []any {
			types := strings.Join(d.Types, ", ") + When(len(d.Types) == 0, "all")
			return []any{d.Worker, d.Process, types, d.By, Stamp(d.At), d.Reason, d.Dispatchers, d.Running}
		}, "No worker is drained.")
	commands := []*cobra.Command{drain, list, a.resumeCommand("worker", "Let a drained worker get jobs again", "render-1",
		(*client.Client).ResumeWorker)}
	for _, cmd := range commands {
		a.OverClient(cmd)
	}
	return commands
}

const dispatcherDrainLong = `Drains a dispatcher: it accepts no new workers, and tells those that know other dispatchers to
go there. They take their running jobs with them, so no attempt is lost. Workers that know only
this dispatcher stay and get jobs as before: "worker list" shows them. It lasts until
"dispatcher resume" or until the dispatcher is restarted.`

func (a *Invocation) dispatcherDrainCommand() *cobra.Command {
	cmd := New("drain NAME", "Send the workers of a dispatcher to others", "  dispatcherd dispatcher drain host-1", dispatcherDrainLong)
	return a.orderCommand(cmd, "dispatcher", "drained", func(c *client.Client, ctx context.Context, name string) ([]string, error) {
		missing, err := c.DrainDispatcher(ctx, name)
		if err != nil {
			return nil, err
		}
		p, err := Page[contract.Page[contract.Worker]](ctx, a, "/v1/workers", rest.Everywhere{Query: client.Query{Limit: LargestPage}})
		stay := slices.DeleteFunc(p.Items, func(w contract.Worker) bool {
			return w.Moves || w.DispatcherName != name && strconv.Itoa(int(w.Dispatcher)) != name
		})
		if len(stay) > 0 {
			a.Say("Without another dispatcher, these stay: %s. 'dispatcherd worker list' shows them.", Counted(len(stay), "worker"))
		}
		return missing, err
	})
}

// drainOf returns the drain of a worker with a key, without a name if there is none.
func (a *Invocation) drainOf(ctx context.Context, worker, key string) (d client.DrainState, err error) {
	p, err := a.client.Drains(ctx, client.Names{Prefix: worker, Query: client.Query{Limit: LargestPage}})
	if at := slices.IndexFunc(p.Items, func(o client.DrainState) bool { return o.Key() == key }); at >= 0 {
		d = p.Items[at]
	}
	return d, err
}

// lookPause is the time between two looks at a worker that is drained; dispatchers say what runs there with each heartbeat.
const lookPause = time.Second

// awaitDrain waits until no job runs at a drained worker. A worker that is resumed meanwhile is an error.
func (a *Invocation) awaitDrain(ctx context.Context, d *client.DrainState) error {
	if len(d.Unconfirmed) > 0 {
		return exit.Errorf(exit.Unavailable, "not all dispatchers follow the drain yet: repeat the command")
	}
	for background.Pause(ctx, lookPause) {
		now, err := a.drainOf(ctx, d.Worker, d.Key())
		switch {
		case err != nil:
			return err
		case now.Worker == "":
			return exit.Errorf(exit.Conflict, "worker %s was resumed, or has no process left", d.Worker)
		case now.Running == 0:
			return nil
		}
	}
	return ctx.Err()
}
