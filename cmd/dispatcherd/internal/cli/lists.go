package cli

import (
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/dispatcherd/dispatcherd/client"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/httpapi"
	"github.com/dispatcherd/dispatcherd/internal/httpapi/rest"
)

// SlotCommand is the group of commands about slots.
func (a *Invocation) SlotCommand() *cobra.Command {
	var q rest.Slots
	list := List(a, New("list", "List the slots of the cluster and their states",
		"  dispatcherd slot list --type pdf\n  dispatcherd slot list --local --limit 50 -o json"), "slots", &q, &q.Query,
		"slot, dispatcher, worker, number, state, job, types", slotRow, "There are no such slots: no worker has offered one.")
	a.typeFlag(list, &q.Type, "only slots that support this type")
	localFlag(list, &q.Scope)
	return a.APIGroup("slot", "List the slots of the workers", list)
}

// localFlag adds the flag that restricts a list to the dispatcher that answers.
func localFlag(cmd *cobra.Command, q *rest.Scope) {
	cmd.Flags().BoolVar(&q.Local, "local", false, "only those of the dispatcher that answers, not of the whole cluster")
}

// slotEnds says that the worker drains the slot, and that its job is being stopped.
func slotEnds(s *contract.Slot) string {
	return When(s.Draining && s.State != "drained", ", draining") + When(s.Stopping != "", ", stopping: %s", s.Stopping)
}

func slotRow(s *contract.Slot) []any {
	job := When(s.Job != 0, "%d (%s)", s.Job, s.JobType)
	return []any{s.Slot, s.DispatcherName, s.Worker, s.Number, s.State + slotEnds(s), job, strings.Join(s.Types, ", ")}
}

// TypesCommand lists the types of the cluster.
func (a *Invocation) TypesCommand() *cobra.Command {
	var q rest.TypeNames
	cmd := List(a, New("types", "List types, their slots and their waiting jobs",
		"  dispatcherd types\n  dispatcherd types --local --limit 50 -o jsonl"), "types", &q, &q.Query,
		"type, dispatcher, slots, free, other slots, pending, known, requests, oldest, paused, retries", typeRow,
		"No type is known: no worker has offered one, and that count found no pending job.")
	cmd.Long = `Lists the types of the slots and of the waiting jobs of the whole cluster: a line for each type
at each dispatcher.

SLOTS counts the slots of the dispatcher that support the type, and FREE those of them on which
no job runs. OTHER SLOTS counts those of all other dispatchers. PENDING counts the pending jobs
in Postgres, whichever dispatcher will run them: it is the same in each line of a type. It is
counted from time to time; the command says when. KNOWN counts those that the dispatcher has in
memory, and REQUESTS its waiting on-demand requests. OLDEST is how long the oldest of these has
waited. A line without a dispatcher is a type with pending jobs that no dispatcher knows.
PAUSED says who has paused the type, until when and why. RETRIES is the retry policy of the
type, if it has one.`
	localFlag(cmd, &q.Scope)
	a.OverClient(cmd)
	return cmd
}

func typeRow(t *contract.Type) []any {
	return []any{
		t.Type, t.DispatcherName, t.Capacity, t.Free, t.OtherSlots, pendingText(t.Pending), t.Known, t.Requests,
		spanOf(max(t.Oldest, t.OldestKeyed)),
		pauseText(t.Pause), retriesText(t.Retries),
	}
}

// pendingText returns a count of pending rows, which is exact up to a limit.
func pendingText(rows *int) string {
	switch {
	case rows == nil:
		return "not counted"
	case *rows > contract.PendingLimit:
		return "over " + strconv.Itoa(contract.PendingLimit)
	}
	return strconv.Itoa(*rows)
}

func (a *Invocation) jobRequestsCommand() *cobra.Command {
	var q httpapi.TypeFilter
	cmd := List(a, New("requests", "List waiting on-demand requests, the oldest first",
		"  dispatcherd job requests --type pdf\n  dispatcherd job requests --limit 50"), "requests", &q, &q.Query,
		"id, type, priority, waits", func(r *contract.WaitingRequest) []any {
			return []any{r.ID, r.Type, r.Priority, spanOf(r.Age)}
		}, "No request waits in the memory of this dispatcher.")
	a.typeFlag(cmd, &q.Type, "only requests of this type")
	return cmd
}

// WorkerListCommand lists the workers of the cluster.
func (a *Invocation) WorkerListCommand() *cobra.Command {
	var q rest.Everywhere
	cmd := List(a, New("list", "List the connected workers and their slots",
		"  dispatcherd worker list\n  dispatcherd worker list --local -o jsonl"), "workers", &q, &q.Query,
		"worker, dispatcher, session, uid, pid, slots, free, types, drained", workerRow, "No worker is connected.")
	cmd.Long = `Lists the workers that are connected to the dispatchers of the whole cluster.

WORKER is the name that the worker has given itself, DISPATCHER the dispatcher to which it is
connected, and SESSION the number of this connection there. UID and PID are those of its
process, unless it is connected over TCP. SLOTS counts its slots, that is how many jobs it can
run at the same time; "draining" are those that take no more jobs. FREE counts those on which
no job runs or is about to start. TYPES are the types that its slots support. DRAINED says who
has drained the worker, when and why.`
	localFlag(cmd, &q.Scope)
	a.OverClient(cmd)
	return cmd
}

func workerRow(w *contract.Worker) []any {
	slots := strconv.Itoa(w.Slots) + When(w.Draining > 0, ", %d draining", w.Draining)
	types := strings.Join(w.Types, ", ") + When(w.AllTypes > len(w.Types), ", … (%d)", w.AllTypes)
	local := w.PID > 0
	row := []any{w.Worker, w.DispatcherName, w.Session, When(local, "%d", w.UID), When(local, "%d", w.PID), slots, w.Free, types}
	if d := w.Drain; d != nil {
		only := When(len(d.Types) > 0, ", only %s", strings.Join(d.Types, ", "))
		return append(row, "by "+d.By+" at "+Stamp(d.At)+only+When(d.Reason != "", ": %s", d.Reason))
	}
	return append(row, "")
}

// DispatcherCommand is the group of commands about the dispatchers of a database.
func (a *Invocation) DispatcherCommand() *cobra.Command {
	var q rest.Query
	list := List(a, New("list", "List the dispatchers that share the database, the newest first",
		"  dispatcherd dispatcher list\n  dispatcherd dispatcher list -o jsonl"), "dispatchers", &q, &q,
		"id, name, state, started at, heartbeat at, lease, types, running", func(d *contract.Dispatcher) []any {
			lease := time.Duration(d.LeaseMS) * time.Millisecond
			return []any{d.ID, d.Name, d.State, Stamp(d.StartedAt), Stamp(d.HeartbeatAt), lease, d.Types, d.Running}
		}, "There is no dispatcher.")
	return a.APIGroup("dispatcher", "List, drain or resume dispatchers", list, a.dispatcherDrainCommand(),
		a.resumeCommand("dispatcher", "Let a drained dispatcher accept workers again", "host-1",
			(*client.Client).ResumeDispatcher))
}
