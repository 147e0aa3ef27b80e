package settings

import (
	"fmt"

	"github.com/dispatcherd/dispatcherd/internal/exit"
)

// removedSetting is a setting that was renamed, or that is a constant now.
type removedSetting struct {
	name     string
	instead  string // the setting that replaces it; "" = it is a constant
	constant string // its value
	reason   string
}

// removed lists the settings that serve does not have any more. A name in this list is
// an error wherever it is given, so that a setting that has no effect is noticed.
var removed = []removedSetting{
	{name: "answer-poll", constant: "100ms", reason: "it only delays the answer of a durable request that another dispatcher runs"},
	{
		name:     "api-body-timeout",
		constant: "30s",
		reason:   "it bounds the memory for callers that stop sending; working callers do not pause for longer within a body",
	},
	{
		name:     "api-database-connections",
		constant: "4",
		reason:   "the statements of callers are short; more connections slow down the claims of all dispatchers",
	},
	{name: "api-header-timeout", constant: "5s", reason: "headers arrive in one packet"},
	{name: "api-heartbeat", constant: "15s", reason: "it is below the idle timeout of common proxies"},
	{name: "api-idle-timeout", constant: "2m", reason: "at the bound the daemon closes an idle connection for a new one anyway"},
	{name: "api-write-timeout", constant: "30s", reason: "it bounds the memory for a caller that does not read"},
	{name: "beat", instead: "lease", reason: "at least ten heartbeats are sent within a lease"},
	{name: "claim-batch", constant: "1000", reason: "the benchmark gains nothing from larger or smaller batches"},
	{name: "comeback", instead: "reconnect-grace", reason: "it was renamed"},
	{name: "finish-batch", constant: "1000", reason: "the benchmark gains nothing from larger or smaller batches"},
	{name: "heartbeat", instead: "heartbeat-timeout", reason: "a silent worker is pinged every third of it"},
	{name: "hello-timeout", constant: "5s", reason: "a worker sends its hello at once"},
	{
		name:     "keep-answers",
		constant: "10m",
		reason:   "answers are kept in memory for callers that repeat a request; the row of a durable request is kept for --keep-done",
	},
	{name: "keep-cancelled", instead: "keep-done", reason: "cancelled jobs are kept as long as done jobs"},
	{name: "lane-length", constant: "4096", reason: "the rows of one fetch suffice for one round trip at the highest rate"},
	{name: "lanes-per-fetch", constant: "1024", reason: "it bounds the time of one fetch"},
	{name: "lookout", constant: "0s", reason: "the daemon does not spin-wait for answers any more"},
	{name: "lost-per-list", constant: "5", reason: "article 1 requires five"},
	{
		name:     "max-api-connections",
		constant: "10000",
		reason:   "at the bound the daemon closes the connection with the longest idle time; the limit of open files is a further bound",
	},
	{name: "max-api-header", constant: "16384", reason: "no client library sends more"},
	{name: "max-body-bytes", constant: "67108864", reason: "it bounds memory; --memory-bytes is the setting for that"},
	{name: "max-connections", constant: "16384", reason: "the limit of open files bounds the connections of workers"},
	{name: "max-events", constant: "256", reason: "a slow reader of a stream is told how many events it missed"},
	{name: "max-frame", instead: "max-payload", reason: "a frame is as long as the largest payload requires, and at least 1 MiB"},
	{name: "max-keys", constant: "20000", reason: "it bounds memory; --memory-bytes is the setting for that"},
	{name: "max-request-timeout", constant: "1h", reason: "work that takes longer belongs into the queue"},
	{name: "max-run-bytes", constant: "67108864", reason: "it bounds memory; --memory-bytes is the setting for that"},
	{name: "max-runs", constant: "10000", reason: "it bounds memory; --memory-bytes is the setting for that"},
	{name: "max-slots", constant: "200000", reason: "it only protects the daemon from a broken worker"},
	{name: "max-slots-per-worker", constant: "10000", reason: "it only protects the daemon from a broken worker"},
	{name: "max-types", constant: "10000", reason: "it bounds the labels of metrics and the lanes of a fetch"},
	{name: "max-types-per-slot", constant: "4096", reason: "it only protects the daemon from a broken worker"},
	{name: "max-unrecorded", constant: "20000", reason: "it bounds the results in memory while Postgres does not answer"},
	{name: "max-upload", constant: "1073741824", reason: "COPY has no bound and is faster"},
	{name: "no-on-demand-cap", instead: "on-demand-cap", reason: "write --on-demand-cap none"},
	{name: "outbox", constant: "1024", reason: "it bounds the memory for a worker that does not read"},
	{name: "patience", constant: "100ms", reason: "it bounds how long a decision waits for a fetch"},
	{name: "poll-deaf", constant: "200ms", reason: "it applies only while notifications do not arrive"},
	{name: "procs", constant: "all", reason: "GOMAXPROCS sets the number of processors"},
	{name: "recorder-bytes", instead: "decision-log", reason: "the daemon records decisions instead of all steps"},
	{name: "request-timeout", constant: "30s", reason: "a request that needs more time names its deadline"},
	{
		name:     "share-handicap",
		constant: "2s",
		reason:   "it must be longer than the time between two scans, and the overtaking window contains it",
	},
	{
		name:    "socket-mode",
		instead: "worker-socket",
		reason:  "each socket has its own mode: write --worker-socket PATH,mode=0660,group=NAME and the same for --api-socket",
	},
	{name: "weight-ageing", instead: "weights", reason: "write --weights ageing=16"},
	{name: "weight-on-demand", instead: "weights", reason: "write --weights on-demand=4096"},
	{name: "weight-on-demand-ageing", instead: "weights", reason: "write --weights on-demand-ageing=32"},
	{name: "weight-priority", instead: "weights", reason: "write --weights priority=1024"},
	{name: "weight-rarity", instead: "weights", reason: "write --weights rarity=500"},
	{name: "write-timeout", constant: "10s", reason: "it bounds the memory for a worker that does not read"},
}

// String says what to do instead.
func (r removedSetting) String() string {
	if r.instead != "" {
		return fmt.Sprintf("it is replaced by --%s: %s", r.instead, r.reason)
	}
	return fmt.Sprintf("it is a constant now (%s): %s", r.constant, r.reason)
}

// findRemoved returns the entry of a name, or nil.
func findRemoved(name string) *removedSetting {
	for i := range removed {
		if removed[i].name == name {
			return &removed[i]
		}
	}
	return nil
}

// removedVariables returns an error for the first environment variable of a removed
// setting, in the order of the list.
func (a *Invocation) removedVariables() error {
	for i := range removed {
		name := variable(removed[i].name)
		if _, given := a.Env(name); given {
			return exit.Errorf(exit.Usage, "environment variable %s: there is no setting %q any more; %v", name, removed[i].name, removed[i])
		}
	}
	return nil
}
