package cli

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/httpapi"
	"github.com/dispatcherd/dispatcherd/internal/httpapi/rest"
)

func (a *Invocation) jobWhyCommand() *cobra.Command {
	return a.onJob(New("why ID", "Explain why a job waits, and how it was placed",
		"  dispatcherd job why 17\n  dispatcherd job why -3\n  dispatcherd job why 17 -o json | jq .why.reasons",
		`Explains why a job waits: reasons, score, rank, slots, and the jobs before it. For a job that
has started or ended it prints the placement from the decision log. Requests have negative ids
("job requests", "slot list").`), true,
		func(ctx context.Context, id dispatcherd.JobID) error {
			why, err := Call[httpapi.Why](ctx, a, http.MethodGet, rest.JobPath(id)+"/why", nil)
			if err != nil {
				return err
			}
			return PrintFacts(a, "why", &why, addWhy)
		})
}

// RequestIDsLast moves the ids of requests in memory on the command lines of `job why` and
// `job cancel` behind all flags, because they begin with a minus.
func RequestIDsLast(args []string) []string {
	at := slices.IndexFunc(args, func(arg string) bool { return arg == "why" || arg == "cancel" })
	if at < 1 || args[at-1] != "job" || slices.Contains(args, "--") {
		return args
	}
	rest, ids := slices.Clone(args[:at+1]), []string{"--"}
	for i, arg := range args[at+1:] {
		if n, err := strconv.ParseInt(arg, 10, 64); err == nil && n < 0 && args[at+i] != "--count" {
			ids = append(ids, arg)
		} else {
			rest = append(rest, arg)
		}
	}
	if len(ids) == 1 {
		return args
	}
	return append(rest, ids...)
}

// reasonTexts explain the reasons.
var reasonTexts = map[string]string{
	"Running":   "it runs",
	"Recording": "it has ended; its result is being written to Postgres",
	"Unrecordable": "it has ended, but its row is locked or Postgres refuses the end; the dispatcher tries " +
		"again after a growing pause",
	"Claimed":                       "a slot is reserved for it; the claim is in flight, or its payload is being read",
	"Scheduled":                     "its run_at is in the future",
	"Backoff":                       "it failed; its next attempt is in the future",
	"Paused":                        "an operator has paused the type",
	"Draining":                      "this dispatcher is about to stop",
	"SetAside":                      "Postgres refused to claim it; the dispatcher tries again after a minute",
	"Fenced":                        "this dispatcher cannot renew its lease, so it claims no rows",
	"CircuitOpen":                   "Postgres does not answer, or is read-only",
	"Unrecorded":                    "too many ended attempts are not yet recorded in Postgres",
	"TypeUnknown":                   "no worker of this dispatcher offers the type",
	"NoCapacity":                    "no slot supports the type now",
	"CapacityBusy":                  "every slot that supports the type is taken",
	"ClaimRaceLost":                 "the cursor is after it: its claim was lost, it was committed late, or it is retried",
	"Unread":                        "it is after the rows that were read so far",
	"OtherShare":                    "it is in the share of another dispatcher; this one reads it when slots are free or the job is old",
	"AwaitsFetch":                   "a fetch in flight may return a job with a higher score",
	"ClaimsFull":                    "the next claim is full, or will be with the jobs that have a higher score",
	"Outranked":                     "jobs with higher scores can use the same slots",
	httpapi.ReasonFinal:             "it has ended",
	httpapi.ReasonOtherDispatcher:   "another dispatcher runs it",
	httpapi.ReasonAdmittedElsewhere: "only the dispatcher below may run it, because a limit counts the jobs of each dispatcher: ask it",
	httpapi.ReasonRowLocked:         "another session has locked the row, so dispatchers skip it",
	httpapi.ReasonKeyBusy:           "a key has no room",
	httpapi.ReasonKeyOrder:          "another job has precedence at a key",
	httpapi.ReasonKeyRate:           "the window of a key has no room",
	httpapi.ReasonKeyPaused:         "the capacity of a key is 0",
	httpapi.ReasonKeyCost:           "it costs more than the limit of a key",
	httpapi.ReasonKeyElsewhere:      "another dispatcher is the controller, which admits jobs with keys",
	httpapi.ReasonDependencies:      "it waits for other jobs",
	httpapi.ReasonUnsealed:          "its batch is not sealed, so members may follow",
	httpapi.ReasonAside:             "its batch or flow is set aside until a repair",
	httpapi.ReasonHeld:              "it has no permits yet: the controller looks for new jobs and slots about once per second",
	httpapi.ReasonUnheld:            "a failover lost changes: it ran here in the table only, and is released within 1 min",
}

// reasonText explains a reason with its numbers, as far as they are known.
func reasonText(why *httpapi.Why, reason string) string {
	switch {
	case reason == "Paused" && why.Paused != "":
		return strings.TrimPrefix(why.Paused, "Paused ")
	case reason == "TypeUnknown" && why.OtherSlots > 0:
		return reasonTexts[reason] + "; other dispatchers have slots for it"
	case reason == "TypeUnknown" || reason == "NoCapacity":
		return "no slot of any dispatcher supports the type" + When(why.Drained != "", ": %s", why.Drained) +
			When(why.Drained == "" && why.Similar != "", "; is %q meant?", why.Similar)
	case reason == httpapi.ReasonRowLocked && why.Locked != nil:
		return lockText(why.Locked)
	case reason == httpapi.ReasonUnsealed:
		return fmt.Sprintf("%s: 'dispatcherd batch seal %d' or seal_batch(%d) in SQL", reasonTexts[reason], why.Job, why.Job)
	case reason == httpapi.ReasonAside && why.WaitsFor != nil:
		return reasonTexts[reason] + ": " + why.WaitsFor.Aside
	case reason == httpapi.ReasonDependencies && why.WaitsFor != nil && why.WaitsFor.Left != nil:
		return dependenciesText(why.WaitsFor)
	case strings.HasPrefix(reason, "Key") && why.KeyWait != nil:
		text := keyText(reason, why.KeyWait, why.ReadAt)
		if parent := why.KeyWait.Parent; parent != nil {
			text += fmt.Sprintf("; its parent, job %d, has a key that it needs: if the parent waits for it, neither continues", *parent)
		}
		return text
	case reason == httpapi.ReasonHeld && why.KeyWait != nil && why.KeyWait.Detail != "":
		return why.KeyWait.Detail
	}
	return reasonTexts[reason]
}

// mostFirst is how many of the jobs for which a job waits are listed.
const mostFirst = 10

// dependenciesText says for how many jobs a job waits, and for which ones first.
func dependenciesText(d *contract.Dependencies) string {
	what := "dependencies"
	if d.Batch {
		what = "members"
	}
	left := *d.Left
	if len(d.First) < mostFirst { // these are all of them, whatever the counter says
		left = len(d.First)
	}
	if left == 0 {
		return "all of its " + what + " have ended, and dispatchers count the last ends"
	}
	verb := "have"
	if left == 1 {
		verb = "has"
	}
	text := fmt.Sprintf("%d of its %s %s not ended", left, what, verb)
	first := make([]string, len(d.First))
	for i, j := range d.First {
		first[i] = fmt.Sprintf("job %d%s %s", j.ID, When(j.Name != "", " %s", j.Name), j.Status)
	}
	return text + ": " + strings.Join(first, ", ") + When(len(first) < left, ", …")
}

// moment formats a time, and how far it is after now, which may be unknown.
func moment(t, now time.Time) string {
	d := t.Sub(now).Round(time.Millisecond)
	return Stamp(t) + When(d > 0 && !now.IsZero(), ", in %v", d)
}

func lockText(l *httpapi.RowLock) string {
	text := "several sessions of Postgres have"
	if l.PID != 0 {
		text = fmt.Sprintf("the session of Postgres with process id %d (%s) has", l.PID, cmp.Or(l.Application, "no application name"))
	}
	since := stampOrNone(l.Since)
	return text + " locked the row" + When(since != "", " since %s", since) + "; dispatchers skip it"
}

// addWhy adds the facts of an explanation.
func addWhy(add Add, why *httpapi.Why) {
	add("job", "%d %s, priority %d, %s", why.Job, why.Type, why.Priority, why.Status)
	add.Some("keys", why.Keys)
	add.Some("owner", why.Owner)
	add.Some("unique key", why.UniqueKey)
	if why.KeyJob != nil {
		add("", "job %d has it, so this job cannot be retried", *why.KeyJob)
	}
	if why.KeyUntil != nil {
		add("", "taken until %s, also after the end of the job", Stamp(*why.KeyUntil))
	}
	for _, r := range why.Reasons {
		add("reason", "%s: %s", r, reasonText(why, r))
	}
	if len(why.Reasons) == 0 {
		add("reason", "none: it starts next")
	}
	add.Some("cancelled by", why.Cancelled)
	add.Some("last error", shorten(why.Error, 500))
	add.Some("refused", why.SetAside)
	add.Some("refused", why.Held)
	add.Some("stopping", why.Stopping)
	add.Some("offered", strings.Join(why.Offered, ", "))
	if why.RunAt != nil {
		add("run_at", "%s", moment(*why.RunAt, why.ReadAt))
	}
	add.Some("failures", When(why.Failures > 0, "%d of at most %d", why.Failures, why.Attempts))
	add.Some("dispatcher", When(why.Dispatcher != 0, "%s", cmp.Or(why.DispatcherName, goneDispatcher)))
	printDecisions(add, why)
	if why.Score == nil {
		return
	}
	if why.Status != dispatcherd.Running {
		add("age", "%v", spanOf(why.Age))
		add("score", "%s", scoreText(why.Score))
	}
	if why.Rank > 0 && why.Waiting > 0 { // a type without a slot is not read
		least := When(why.AtLeast, "at least ")
		add("rank", "%s%d of %d %s, %s%d of %d in all", least, why.Rank, why.Waiting, why.Type, least, why.RankAll, why.WaitingAll)
	}
	add("slots", "%s", slotsText(why))
	for i := range why.Slots {
		add("", "%s", slotText(&why.Slots[i], why.Slot))
	}
	add.Some("ahead", When(why.Competing > 0, "%s%d can use the same slots", When(why.AtLeast, "at least "), why.Competing))
	for i := range why.Ahead {
		add("", "%s", rivalText(&why.Ahead[i], why.Mode))
	}
	if e := why.Expected; e != nil {
		add("expected", "%s", expectedText(e))
	}
	if o := why.Overtaking; o != nil && why.Paused == "" && why.Capacity+why.OtherSlots > 0 {
		add("overtaking", "%s", overtakingText(o, why.Expected))
	}
}

// printDecisions writes what the decision log holds about the job.
func printDecisions(add Add, why *httpapi.Why) {
	former := When(why.Status == dispatcherd.Pending, "last ")
	if p := why.Placement; p != nil {
		known := p.SlotTypes > 0 // otherwise the row says where the job ran
		add(former+"placed", "%s on slot %d of %s%s", Stamp(p.At), p.Slot, p.Worker,
			When(known, ", which supports %s", Counted(p.SlotTypes, "type")))
		add("", "score %s%s", scoreText(&p.Score), When(known, ", capacity %d", p.Capacity))
		if known {
			add("", "runner-up: %s", runnerUpText(p.RunnerUp))
		}
		add("", "waited %v%s%s", spanOf(p.Waited), When(p.Permits > 0, ", of this %v for permits", spanOf(p.Permits)),
			When(len(p.WaitedFor) > 0, "; waited for: %s", strings.Join(p.WaitedFor, ", ")))
	}
	if e := why.End; e != nil {
		add(former+"ended", "%s %s after %v, attempt %d", Stamp(e.At), e.Outcome, spanOf(e.Ran), e.Attempt)
	}
	text := decisionLogTexts[why.DecisionLog]
	if why.DecisionLog == httpapi.DecisionLogMissing && why.Dispatcher != 0 {
		text = "another dispatcher placed it, and only its log says more; " + keptPlacements
	}
	add.Some("decision log", text)
}

// keptPlacements says of which jobs the row contains the placement.
const keptPlacements = "a row keeps the placement of a job that failed, or that waited at least 1 s"

// decisionLogTexts explain why there is no placement.
var decisionLogTexts = map[string]string{
	httpapi.DecisionLogOverwritten: "the placement is not in the log; older entries are overwritten (see --decision-log)",
	httpapi.DecisionLogMissing:     "an earlier process, or another dispatcher, placed it; " + keptPlacements,
	httpapi.DecisionLogNeverPlaced: "it was never placed by this dispatcher",
	httpapi.DecisionLogOff:         "this dispatcher keeps no decision log (--decision-log 0)",
}

func runnerUpText(r *contract.RunnerUp) string {
	switch {
	case r == nil:
		return "none"
	case r.Job == 0:
		return fmt.Sprintf("a %s job that was not read yet, score at most %.0f", r.Type, r.Score)
	}
	return fmt.Sprintf("job %d %s, score %.0f", r.Job, r.Type, r.Score)
}

func scoreText(s *contract.Score) string {
	return fmt.Sprintf("%.0f = base %.0f + age %.0f + rarity %.0f + on-demand %.0f", s.Total, s.Base, s.Age, s.Rarity, s.OnDemand) +
		brevity(s.Brevity)
}

// brevity is the last term of a score, if there is one.
func brevity(points float64) string { return When(points != 0, " + brevity %.0f", points) }

func expectedText(e *httpapi.Expected) string {
	source := "learned from"
	if !e.Learned {
		source = "assumed while none is done of the"
	}
	text := fmt.Sprintf("%v, %s jobs of its type%s", spanOf(e.Duration), source, When(e.Class != "", " and duration class %s", e.Class))
	if e.PassedBy != nil {
		text += fmt.Sprintf("; while it is not longer, a job that arrives more than %v later cannot overtake it", spanOf(*e.PassedBy))
	}
	return text
}

func slotsText(why *httpapi.Why) string {
	return fmt.Sprintf("%d support the type, %d of them free", why.Capacity, why.Free) +
		When(why.OtherSlots > 0, "; %d more at other dispatchers", why.OtherSlots)
}

func slotText(s *contract.Slot, mine dispatcherd.SlotID) string {
	return fmt.Sprintf("slot %d %s/%d [%s] %s", s.Slot, s.Worker, s.Number, strings.Join(s.Types, " "), s.State) +
		When(s.Job != 0, " with job %d (%s)", s.Job, s.JobType) +
		When(s.Busy > 0, " for %v", spanOf(s.Busy)) +
		When(s.Left > 0, ", timeout in %v", spanOf(s.Left)) + slotEnds(s) +
		When(s.Slot == mine, ": this job's")
}

// rivalText describes a job with a higher score than a job of a mode.
func rivalText(r *contract.Rival, mode string) string {
	passed := "never overtaken: both age at the same rate"
	switch {
	case r.Passed == nil && r.Mode != mode && mode == dispatcherd.Queued.String():
		passed = "never overtaken: an on-demand request ages at least as fast"
	case r.Passed != nil && *r.Passed > 0:
		passed = fmt.Sprintf("overtaken in %v", spanOf(*r.Passed))
	case r.Passed != nil:
		passed = "overtaken now"
	}
	return fmt.Sprintf("job %d %s priority %d %s, score %.0f: %s", r.Job, r.Type, r.Priority, r.Mode, r.Score.Total, passed)
}

func overtakingText(o *httpapi.Overtaking, e *httpapi.Expected) string {
	if o.Closes == 0 {
		return fmt.Sprintf("no later job can overtake it (the window of %v is over)", spanOf(o.Window))
	}
	if e != nil && e.PassedBy != nil {
		return fmt.Sprintf("whatever its expected duration becomes, no later job can overtake it after the next %v", spanOf(o.Closes))
	}
	return fmt.Sprintf("later jobs can overtake it during the next %v", spanOf(o.Closes))
}

// spanOf converts seconds for display.
func spanOf(s float64) time.Duration {
	return time.Duration(s * float64(time.Second)).Round(time.Millisecond)
}

// keyText says for which key a job waits, and for what.
func keyText(reason string, k *httpapi.KeyWait, now time.Time) string {
	var text string
	switch reason {
	case httpapi.ReasonKeyPaused:
		return fmt.Sprintf("key %s is paused: its capacity is 0; 'limit set' with another capacity resumes it", k.Key)
	case httpapi.ReasonKeyCost:
		return fmt.Sprintf("it costs more than the limit of key %s, which is %s: raise the limit, or cancel the job", k.Key, orNone(k.Capacity))
	case httpapi.ReasonKeyOrder:
		text = fmt.Sprintf("job %d has precedence at key %s", k.First, k.Key)
		if k.RetryAt != nil {
			text += " while it waits for its retry (on_retry=wait), until " + moment(*k.RetryAt, now)
		}
	case httpapi.ReasonKeyRate:
		text = fmt.Sprintf("the window of key %s has no room", k.Key)
		if k.At != nil {
			text += " until " + moment(*k.At, now)
		}
	case httpapi.ReasonKeyElsewhere:
		if k.Controller == nil {
			return "no dispatcher is the controller, which admits jobs with keys; " + keyHeldText(k)
		}
		return fmt.Sprintf("dispatcher %s is the controller and knows more; %s", k.Controller.Name, keyHeldText(k))
	default:
		text = keyHeldText(k)
	}
	return text + When(k.Position > 0, "; place %s%d in the queue", When(k.AtLeast, "at least "), k.Position)
}

// keyHeldText says how much of a key is held, and by which jobs.
func keyHeldText(k *httpapi.KeyWait) string {
	holders := strings.Trim(fmt.Sprint(k.Holders), "[]")
	if k.Alone && len(k.Holders) == 1 {
		return fmt.Sprintf("job %s runs alone on key %s", holders, k.Key)
	}
	text := fmt.Sprintf("%d of capacity %s%s of key %s are held", k.Held, orNone(k.Capacity),
		When(k.Scope != "", " for each dispatcher"), k.Key)
	if k.Alone {
		text = fmt.Sprintf("jobs run alone on key %s at their dispatchers; held", k.Key)
	}
	return text + When(holders != "", " by %s", holders)
}
