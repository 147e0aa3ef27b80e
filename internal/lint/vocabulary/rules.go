package vocabulary

// Rule rejects words.
type Rule struct {
	Words    string   // separated by spaces, lower case, every inflection listed
	Use      string   // what to write instead
	Names    bool     // reject only names that Go code declares, and file names
	Packages []string // where the rule applies, folders below included; none: everywhere
}

// Rules is the table of replaced words.
var Rules = append(anywhere, names...)

// anywhere are words without another use in this repository.
var anywhere = []Rule{
	{Words: "bell bells doorbell storm storms deaf", Use: "notification gate, notification, throttled, not subscribed"},
	{Words: "dear dearer dearest", Use: "slow"},
	{Words: "crowd crowds crowded", Use: "equal timestamps"},
	{Words: "phantom phantoms", Use: "upper bound of the next head"},
	{Words: "abroad elsewhere", Use: "non-local rows, cluster capacity, or the place by its name"},
	{Words: "handicap handicaps", Use: "penalty"},
	{Words: "hungry stir stirred clockwork", Use: "idle capacity, dirty, timer-driven"},
	{Words: "spell spells", Use: "circuit breaker, open"},
	{Words: "doubt doubts doubted doubtful", Use: "unknown outcome"},
	{Words: "seat seats seated dismiss dismissed", Use: "assign, release"},
	{Words: "strand strands stranded stranding sever severs severed", Use: "detach, disconnect"},
	{Words: "desert deserts deserted rebuff rebuffs rebuffed", Use: "worker lost, reject"},
	{Words: "bereave bereaved bereft", Use: "no capacity"},
	{Words: "forgetful comeback comebacks", Use: "not resumable, reconnect grace period"},
	{Words: "presentation presentations presented", Use: "resume offer"},
	{Words: "parted", Use: "retried in isolation"},
	{Words: "rivalry stretch stretches stretched vain", Use: "contention, id range, futile"},
	{Words: "leaf", Use: "daily partition"},
	{Words: "leaves", Use: "daily partitions", Names: true},
	{Words: "lapse lapses lapsed vigil vigils", Use: "expiry, capacity wait"},
	{Words: "convict convicts convicted", Use: "drop"},
	{Words: "solitude seldom", Use: "single caller, rate-limited log"},
	{Words: "brief inward leavers lookout lookouts habit habits", Use: "nothing: the mechanism is removed"},
	{Words: "freeze freezes journal journals footprint whirl midway gear", Use: "decision log, resources, random walk, mid-run snapshot"},
	{Words: "nobody somebody whoever anybody everybody", Use: "the subject by its name: no worker, a caller, each dispatcher"},
}

// names are words with an ordinary meaning besides the replaced one.
var names = []Rule{
	{Words: "ring rings rang hears", Use: "notify, subscribed", Names: true, Packages: decisions},
	{Words: "look looks looked owed seen", Use: "scan, full scan, pending", Names: true, Packages: decisions},
	{Words: "behind", Use: "backfill scan", Names: true, Packages: decisions},
	{Words: "kinds line", Use: "type state, request queue, known", Names: true, Packages: core},
	{Words: "foreign divide", Use: "non-local rows, repartition", Names: true, Packages: decisions},
	{Words: "lazy alert tire tired", Use: "idle, active, back off", Names: true, Packages: core},
	{Words: "outage", Use: "open circuit breaker", Names: true, Packages: decisions},
	{Words: "land landed", Use: "in flight, complete", Names: true, Packages: decisions},
	{Words: "standing evict evicted", Use: "claimed but unassigned, preempt", Names: true, Packages: decisions},
	{
		Words:    "told shown mark marks marked nth overtakes",
		Use:      "sent to, generation, session fingerprint, supersedes",
		Names:    true,
		Packages: []string{"actor", "backlog", "claim", "internal/contract", "internal/sim", "worker", "workerproto"},
	},
	{
		Words:    "rests dense jump jumps link",
		Use:      "deferred work, contiguous ids, skip scan, connection",
		Names:    true,
		Packages: []string{"claim"},
	},
	{
		Words:    "run runs need wish wishes front plain place turn",
		Use:      "shared request, options",
		Names:    true,
		Packages: []string{"internal/httpapi", "client"},
	},
	{
		Words:    "hand life letter letters tell era",
		Use:      "executor, outgoing batch, unacknowledged report, generation",
		Names:    true,
		Packages: []string{"worker"},
	},
	{
		Words:    "trouble face faces opening hearing",
		Use:      "statement log, listener, handshake, listener state",
		Names:    true,
		Packages: []string{"internal/httpapi", "claim", "cmd", "internal/daemon", "workerproto"},
	},
	{
		Words:    "quiet settle settles settled",
		Use:      "nothing: the mechanism is removed",
		Names:    true,
		Packages: []string{"actor", "internal/httpapi", "claim", "cmd", "internal/daemon", "worker", "workerproto"},
	},
	{Words: "carry grammar", Use: "one package for payload limits and the JSON scanner", Names: true},
}

var (
	core      = []string{"actor", "backlog"}
	decisions = []string{"actor", "backlog", "claim", "cmd", "internal/daemon", "internal/contract", "internal/sim"}
)

// exception permits some words in some files.
type exception struct {
	path   string // of a file or folder
	words  string // separated by spaces; none: all
	line   string // the exception holds for lines that contain this; none: all lines
	reason string
}

var exceptions = []exception{
	{path: "internal/lint/vocabulary", reason: "this table"},
	{path: "internal/lint/vocabulary_test.go", reason: "the negative test"},
	{path: "migrations/sql", reason: "the text of a released migration does not change"},
	{
		path:   "migrations/former_names_test.go",
		words:  "leaves",
		line:   "keep_leaves",
		reason: "daemons for schema 12 or earlier call this function",
	},
	{path: "CHANGELOG.md", reason: "it lists former names"},
	{path: "internal/devpg", words: "nobody", reason: "the user of that name"},
	{path: "cmd/dispatcherd/internal/settings/removed.go", words: "comeback lookout deaf handicap", reason: "names of removed flags"},
	{path: "cmd/dispatcherd/removed_flags_test.go", words: "comeback", reason: "name of a removed flag"},
	{path: "cmd/dispatcherd/usage_test.go", words: "comeback", reason: "name of a removed flag"},
	{path: "cmd/dispatcherd/testdata/usage-errors.txt", words: "comeback", reason: "name of a removed flag"},
	{path: "cmd/dispatcherd/testdata/migrate.txt", words: "leaves", reason: "file name of a released migration"},
	{path: "internal/httpapi/job_status.go", words: "run", line: "RunAt", reason: "the column run_at"},
	{path: "internal/httpapi/why.go", words: "run", line: "RunAt", reason: "the column run_at"},
	{path: "internal/httpapi/why.go", words: "elsewhere", line: "KeyElsewhere", reason: "the name of a reason"},
	{path: "cmd/dispatcherd/internal/jobs", words: "elsewhere", line: "KeyElsewhere", reason: "the name of a reason"},
	{path: "internal/daemon/backend/keys.go", words: "elsewhere", line: "KeyElsewhere", reason: "the name of a reason"},
	{path: "docs/api.md", words: "elsewhere", line: "KeyElsewhere", reason: "the name of a reason"},
	{path: "e2e/keys_test.go", words: "elsewhere", line: "KeyElsewhere", reason: "the name of a reason"},
	{path: "client/insert.go", words: "run", line: "RunAt", reason: "the column run_at"},
	{path: "client/flow.go", words: "run", line: "unWhen", reason: "the column run_when"},
	{path: "client/flow.go", words: "run", line: "RunAt", reason: "the column run_at"},
	{path: "client/batch.go", words: "run", line: "RunWhen", reason: "the column run_when"},
	{path: "client/schedules.go", words: "run", line: ") Run(", reason: "a run of a schedule"},
	{path: "internal/httpapi/schedules_test.go", words: "run", line: ") Run(", reason: "a run of a schedule"},
}
