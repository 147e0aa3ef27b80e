package jobs

import (
	"net/http"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/dispatcherd/dispatcherd/cmd/dispatcherd/internal/ask"
	"github.com/dispatcherd/dispatcherd/cmd/dispatcherd/internal/console"
	"github.com/dispatcherd/dispatcherd/internal/httpapi"
	"github.com/dispatcherd/dispatcherd/internal/httpapi/rest"
)

func (a commands) whyCommand() *cobra.Command {
	return &cobra.Command{
		Use: "why ID", Short: "Explain why a job waits, and how it was placed",
		Long: `Explains why a job waits: reasons, score, rank, slots, and the jobs before it. For a job that has started or ended it
prints the placement from the decision log. Requests have negative ids ("job requests", "slot list").`,
		Example:           "  dispatcherd job why 17\n  dispatcherd job why -3\n  dispatcherd job why 17 -o json | jq .why.reasons",
		ValidArgsFunction: a.completeIDs(),
		RunE: func(cmd *cobra.Command, args []string) error {
			ids, err := jobIDs(args, true)
			if err != nil {
				return err
			}
			why, err := ask.Call[httpapi.Why](cmd.Context(), &a.API, http.MethodGet, rest.JobPath(ids[0])+"/why", nil)
			if err != nil {
				return about(ids[0], err)
			}
			return console.PrintFacts(&a.Console, "why", &why, addWhy)
		},
	}
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
	"Claimed":                     "a slot is reserved for it; the claim is in flight, or its payload is being read",
	"Scheduled":                   "its run_at is in the future",
	"Backoff":                     "it failed; its next attempt is in the future",
	"Draining":                    "this dispatcher is about to stop",
	"SetAside":                    "Postgres refused to claim it; the dispatcher tries again after a minute",
	"Fenced":                      "this dispatcher cannot renew its lease, so it claims no rows",
	"CircuitOpen":                 "Postgres does not answer",
	"Unrecorded":                  "too many ended attempts are not yet recorded in Postgres",
	"TypeUnknown":                 "no worker of this dispatcher offers the type",
	"NoCapacity":                  "no slot supports the type now",
	"CapacityBusy":                "every slot that supports the type is taken",
	"ClaimRaceLost":               "the cursor is after it: its claim was lost, it was committed late, or it is retried",
	"Unread":                      "it is after the rows that were read so far",
	"OtherShare":                  "it is in the share of another dispatcher; this dispatcher reads it when slots are free or the job is old",
	"AwaitsFetch":                 "a fetch in flight may return a job with a higher score",
	"ClaimsFull":                  "the next claim is full, or will be with the jobs that have a higher score",
	"Outranked":                   "jobs with higher scores can use the same slots",
	httpapi.ReasonFinal:           "it has ended",
	httpapi.ReasonOtherDispatcher: "another dispatcher runs it",
	httpapi.ReasonRowLocked:       "another session has locked the row, so dispatchers skip it",
	httpapi.ReasonKeyBusy:         "a key has no room",
	httpapi.ReasonKeyOrder:        "another job has precedence at a key",
	httpapi.ReasonKeyRate:         "the window of a key has no room",
	httpapi.ReasonKeyPaused:       "the capacity of a key is 0; 'limit set' with another capacity resumes it",
	httpapi.ReasonKeyCost:         "it costs more than the limit of a key: raise the limit, or cancel the job",
	httpapi.ReasonKeyElsewhere:    "another dispatcher is the controller, which admits jobs with keys",
	httpapi.ReasonDependencies:    "it waits for other jobs",
	httpapi.ReasonUnsealed:        "its batch is not sealed, so members may follow: 'dispatcherd batch seal' or seal_batch in SQL",
	httpapi.ReasonAside:           "its batch or flow is set aside until a repair",
	httpapi.ReasonHeld:            "the controller has not admitted it",
	httpapi.ReasonUnheld:          "a failover lost changes: it ran here in the table only, and is released within 1 min",
}

// addWhy adds the facts of an explanation, the reasons first.
func addWhy(add console.Add, why *httpapi.Why) {
	for _, r := range why.Reasons {
		add("reason", "%s: %s", r, reasonTexts[r])
	}
	if len(why.Reasons) == 0 {
		add("reason", "none: it starts next")
	}
	facts := *why
	facts.Reasons = nil
	add.Fields(facts)
}
