// Command worker is a worker process of the experiments. It does what the payloads say and
// writes a log of every execution.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/dispatcherd/dispatcherd/tools/lab/internal/counter"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/history"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/program"
	"github.com/dispatcherd/dispatcherd/worker"
	"github.com/dispatcherd/dispatcherd/workerproto"
)

func main() {
	var o options
	o.dispatcher.Flags()
	flag.StringVar(&o.name, "name", "w", "name of this process")
	flag.StringVar(&o.log, "log", "", "file for the log of executions; must not exist; empty = no log")
	flag.StringVar(&o.slots, "slots", "", "slots and their types, such as 4:a,b;1:c")
	flag.StringVar(&o.types, "types", "", "all existing types, so that a job on the wrong slot is executed and logged")
	flag.DurationVar(&o.grace, "grace", 5*time.Second, "grace period for running jobs after SIGTERM")
	flag.StringVar(&o.members, "members", "",
		"file with a JSON list of workers of this process, which replace -name, -log and -dispatcher")
	flag.BoolVar(&o.flood, "flood", false, "only connect, say hello and close, until SIGTERM; print the number of connections")
	flag.Parse()
	program.Main("worker", func(ctx context.Context) error {
		if o.flood {
			return flood(ctx, o.dispatcher.Socket)
		}
		return runAll(ctx, o)
	})
}

type options struct {
	dispatcher                       program.Dispatcher
	name, log, slots, types, members string
	grace                            time.Duration
	flood                            bool
}

// runAll runs the workers of the process. If one of them ends with an error, it ends the others.
func runAll(ctx context.Context, o options) error {
	members := []history.Colleague{{Name: o.name, Log: o.log, Dispatcher: o.dispatcher.Addresses}}
	if o.members != "" {
		text, err := os.ReadFile(o.members)
		if err != nil {
			return err
		}
		if err := json.Unmarshal(text, &members); err != nil {
			return err
		}
	}
	all, ctx := errgroup.WithContext(ctx)
	for _, m := range members {
		one := o
		one.name, one.log, one.dispatcher.Addresses = m.Name, m.Log, m.Dispatcher
		all.Go(func() error { return run(ctx, one) })
	}
	return all.Wait()
}

func run(ctx context.Context, o options) error {
	var log *history.Log // nil = none
	w := worker.New(o.dispatcher.Options(worker.Options{
		Name: o.name, Grace: o.grace, MaxBackoff: 100 * time.Millisecond,
		Connected: func(welcome workerproto.Welcome) { log.Connected(welcome.Dispatcher) },
	}))
	offers := map[int32][]string{}
	for group := range strings.SplitSeq(o.slots, ";") {
		count, types, _ := strings.Cut(group, ":")
		n, err := strconv.Atoi(count)
		if err != nil {
			return fmt.Errorf("-slots %q: %w", o.slots, err)
		}
		for range n {
			offers[int32(len(offers))] = strings.Split(types, ",")
		}
		w.Slots(n, strings.Split(types, ",")...)
	}
	if o.log != "" {
		var err error
		if log, err = history.CreateLog(o.log, o.name, offers); err != nil {
			return err
		}
	}
	for t := range strings.SplitSeq(o.types, ",") {
		if t == history.Chunk {
			w.Handle(t, count)
			continue
		}
		w.Handle(t, func(ctx context.Context, job *worker.Job) (any, error) { return perform(ctx, log, job) })
	}
	return w.Run(ctx)
}

// count returns the number of items of a chunk of a fan-out.
func count(_ context.Context, job *worker.Job) (any, error) {
	var items []json.RawMessage
	err := job.Decode(&items)
	return len(items), err
}

// perform writes the start to the log, does the work, writes the end to the log,
// and only then reports.
func perform(ctx context.Context, log *history.Log, job *worker.Job) (any, error) {
	var plan history.Work
	if err := job.Decode(&plan); err != nil {
		return nil, err
	}
	if plan.Do == history.Count {
		return nil, counter.Add(plan.File, int64(job.ID), job.Fence, plan.Times)
	}
	e := history.Execution{Job: int64(job.ID), Attempt: int32(job.Attempt), Slot: job.Slot, Type: job.Type, N: plan.N}
	log.Started(&e)
	how, err := act(ctx, job, &plan)
	log.Ended(&e, how)
	if err != nil {
		return nil, err
	}
	if log == nil {
		return nil, nil
	}
	return history.Result{N: plan.N, Attempt: e.Attempt}, nil
}

func act(ctx context.Context, job *worker.Job, plan *history.Work) (history.Outcome, error) {
	attempt := int32(job.Attempt)
	if plan.Do == history.Die {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {} // the process must do nothing more before it is killed
	}
	if plan.Do == history.Spawn {
		if err := spawn(ctx, job, plan); err != nil {
			return history.Failed, err
		}
	}
	if plan.Ms > 0 {
		timer := time.NewTimer(time.Duration(plan.Ms) * time.Millisecond)
		defer timer.Stop()
		select {
		case <-ctx.Done():
			return history.Stopped, ctx.Err()
		case <-timer.C:
		}
	}
	switch {
	case plan.Do == history.Refuse:
		return history.Refused, worker.Permanent(errors.New(history.PlannedError(attempt)))
	case attempt <= int32(plan.Fail):
		return history.Failed, errors.New(history.PlannedError(attempt))
	}
	return history.OK, nil
}

// spawn inserts the children of a job.
func spawn(ctx context.Context, job *worker.Job, plan *history.Work) error {
	child := worker.Child{Type: history.Child, Payload: plan.Child}
	if plan.Child != nil && plan.Child.Do == history.Spawn {
		child.Type = history.Parent
	}
	for left := plan.Children; left > 0; left -= mostChildren {
		if _, err := job.Spawn(ctx, slices.Repeat([]worker.Child{child}, min(left, mostChildren))...); err != nil {
			return err
		}
	}
	return nil
}

// mostChildren is the bound of one spawn.
const mostChildren = 1000

// flood opens connections as fast as possible.
func flood(ctx context.Context, socket string) error {
	const hello = `{"op":"hello","versions":[1,1],"worker":"flood","slots":[{"slot":0,"types":["flood"]}]}` + "\n"
	n := 0
	for ; ctx.Err() == nil; n++ {
		conn, err := net.Dial("unix", socket)
		if err != nil {
			continue // too many connections wait to be accepted
		}
		_, _ = io.WriteString(conn, hello) // an error is ignored: the connection may be rejected already
		_ = conn.Close()
	}
	_, err := fmt.Fprintln(os.Stdout, n)
	return err
}
