package cli

import (
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/httpapi"
	"github.com/dispatcherd/dispatcherd/internal/httpapi/rest"
)

// SlotCommand is the group of commands about slots.
func (a *Invocation) SlotCommand() *cobra.Command {
	var q httpapi.TypeFilter
	list := List(a, New("list", "List slots and their states, by id",
		"  dispatcherd slot list --type pdf\n  dispatcherd slot list --limit 50 -o json"), "/v1/slots", &q, &q.Query,
		"slot, worker, number, state, job, types", slotRow, "There are no such slots: no worker has offered one.")
	a.typeFlag(list, &q.Type, "only slots that support this type")
	return a.APIGroup("slot", "List the slots of a running dispatcher", list)
}

func slotRow(s *contract.Slot) []any {
	state := s.State + When(s.Draining, ", draining") + When(s.Stopping != "", ", stopping: %s", s.Stopping)
	return []any{s.Slot, s.Worker, s.Number, state, When(s.Job != 0, "%d (%s)", s.Job, s.JobType), strings.Join(s.Types, ", ")}
}

// TypesCommand lists the types of a running dispatcher.
func (a *Invocation) TypesCommand() *cobra.Command {
	var q rest.Query
	cmd := New("types", "List types, their slots and their waiting jobs",
		"  dispatcherd types\n  dispatcherd types --limit 50 -o jsonl")
	cmd.Long = `Lists the types of the slots and of the waiting jobs.

SLOTS and FREE count the slots of this dispatcher, OTHER SLOTS those of other dispatchers.
PENDING counts the pending jobs in Postgres. It is counted from time to time; the command says when.
KNOWN counts those that this dispatcher has in memory, and REQUESTS its waiting on-demand requests.
OLDEST is how long the oldest known job has waited.
PAUSED says who has paused the type, until when and why.`
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		p, err := Page[httpapi.TypePage](cmd.Context(), a, "/v1/types", &q)
		if err != nil {
			return err
		}
		a.Say("Pending jobs were counted %v ago.", time.Duration(p.PendingAge*float64(time.Second)).Round(time.Second/10))
		return PrintPage(a, "types", p.Page, "type, slots, free, other slots, pending, known, requests, oldest, paused", typeRow,
			"No type is known: no worker has offered one, and that count found no pending job.")
	}
	PageFlags(cmd, &q, "types")
	a.APIFlags(cmd)
	return cmd
}

func typeRow(t *httpapi.Type) []any {
	return []any{
		t.Type, t.Capacity, t.Free, t.OtherSlots, pendingText(t.Pending), t.Known, t.Requests, spanOf(max(t.Oldest, t.OldestKeyed)),
		pauseText(t.Pause),
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
		"  dispatcherd job requests --type pdf\n  dispatcherd job requests --limit 50"), "/v1/requests", &q, &q.Query,
		"id, type, priority, waits", func(r *httpapi.WaitingRequest) []any {
			return []any{r.ID, r.Type, r.Priority, spanOf(r.Age)}
		}, "No request waits in the memory of this dispatcher.")
	a.typeFlag(cmd, &q.Type, "only requests of this type")
	return cmd
}

// WorkerListCommand lists the workers of a running dispatcher.
func (a *Invocation) WorkerListCommand() *cobra.Command {
	var q rest.Query
	cmd := List(a, New("list", "List the connected workers and their slots",
		"  dispatcherd worker list\n  dispatcherd worker list -o jsonl"), "/v1/workers", &q, &q,
		"session, worker, uid, pid, slots, free, types, drained", workerRow, "No worker is connected.")
	a.APIFlags(cmd)
	return cmd
}

func workerRow(w *httpapi.Worker) []any {
	slots := strconv.Itoa(w.Slots) + When(w.Draining > 0, ", %d draining", w.Draining)
	types := strings.Join(w.Types, ", ") + When(w.AllTypes > len(w.Types), ", … (%d)", w.AllTypes)
	row := []any{w.Session, w.Worker, w.UID, w.PID, slots, w.Free, types}
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
		"  dispatcherd dispatcher list\n  dispatcherd dispatcher list -o jsonl"), "/v1/dispatchers", &q, &q,
		"id, name, state, started at, heartbeat at, lease, types, running", func(d *contract.Dispatcher) []any {
			lease := time.Duration(d.LeaseMS) * time.Millisecond
			return []any{d.ID, d.Name, d.State, Stamp(d.StartedAt), Stamp(d.HeartbeatAt), lease, d.Types, d.Running}
		}, "There is no dispatcher.")
	return a.APIGroup("dispatcher", "List the dispatchers", list)
}
