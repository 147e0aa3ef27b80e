package actor

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/actor/effect"
	"github.com/dispatcherd/dispatcherd/claim"
	"github.com/dispatcherd/dispatcherd/claim/claimfake"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/timing"
)

// words is a parsed command line: bare words, and key=value pairs. A value may
// be (a,b)(c).
type words struct {
	bare []string
	args map[string]string
}

func parse(line string) words {
	ws := words{args: map[string]string{}}
	for f := range strings.FieldsSeq(line) {
		if k, v, ok := strings.Cut(f, "="); ok {
			ws.args[k] = v
		} else {
			ws.bare = append(ws.bare, f)
		}
	}
	return ws
}

func (ws words) int(key string, def int) int {
	if v, ok := ws.args[key]; ok {
		n, err := strconv.Atoi(v)
		if err != nil {
			panic(fmt.Sprintf("%s=%s is not a number", key, v))
		}
		return n
	}
	return def
}

func (ws words) duration(key string) time.Duration {
	d, err := time.ParseDuration(cmp.Or(ws.args[key], "0s"))
	if err != nil {
		panic(err)
	}
	return d
}

// sets reads "(a,b)(c)" into sorted sets of types.
func sets(s string) [][]string {
	var all [][]string
	for set := range strings.SplitSeq(strings.Trim(s, "()"), ")(") {
		types := strings.Split(set, ",")
		slices.Sort(types)
		all = append(all, types)
	}
	return all
}

// command runs one command and returns its output.
func (w *world) command(line string, body []string) string {
	w.out.Reset()
	ws := parse(line)
	name := ws.bare[0]
	run, ok := commands[name]
	require.True(w.t, ok, "no command %q", name)
	ws.bare = ws.bare[1:]
	run(w, ws, body)
	if !slices.Contains(deferred, name) {
		w.answerAll()
	}
	return w.out.String()
}

// Deferred commands leave the statements that they cause to the next command.
var deferred = []string{"insert", "spoil", "move", "why", "notify", "clock", "hold", "show", "read"}

// commands are the commands of the scenario files. Each command executes the
// statements that it causes. The command hold keeps statements of one name in
// flight until the command answer or lose completes them.
var commands map[string]func(*world, words, []string)

func init() {
	commands = map[string]func(*world, words, []string){
		"at":       func(w *world, ws words, _ []string) { w.use(ws.bare[0]) },
		"config":   (*world).cmdConfig,
		"register": (*world).cmdRegister,
		"offer":    (*world).cmdOffer,
		"withdraw": (*world).cmdWithdraw,
		"goodbye": func(w *world, ws words, _ []string) {
			w.step(Withdrew{Session: w.at.sessions[ws.bare[0]], Goodbye: true})
		},
		"send-away": func(w *world, ws words, _ []string) { w.step(SentAway{On: ws.bare[0] == "on"}) },
		"kill":      func(w *world, ws words, _ []string) { w.step(Unregistered{Session: w.at.sessions[ws.bare[0]]}) },
		"insert":    (*world).cmdInsert,
		"notify":    (*world).cmdNotify,
		"run":       func(w *world, _ words, _ []string) { w.step(Tick{}) },
		"advance":   func(w *world, ws words, _ []string) { w.advance(must(time.ParseDuration(ws.bare[0]))) },
		"clock":     (*world).cmdClock,
		"hold":      func(w *world, ws words, _ []string) { w.at.onHold[effectName(ws.bare[0])] = true },
		"unhold":    func(w *world, ws words, _ []string) { delete(w.at.onHold, effectName(ws.bare[0])) },
		"answer":    (*world).cmdAnswer,
		"lose":      (*world).cmdLose,
		"read":      (*world).cmdRead,
		"steal":     (*world).cmdSteal,
		"spoil":     (*world).cmdSpoil,
		"move": func(w *world, ws words, _ []string) {
			w.table.Change(w.jobs[ws.bare[0]], ws.args["type"], dispatcherd.Priority(ws.int("prio", 0)))
		},
		"why": func(w *world, ws words, _ []string) {
			x := w.at.core.Explain(Inquiry{ID: w.jobs[ws.bare[0]], Type: "pdf"})
			w.printf("%v %s", x.Reasons, x.SetAside+x.Held+x.Paused)
		},
		"lock": func(w *world, ws words, _ []string) {
			for _, name := range ws.bare {
				w.locks[name] = w.table.Lock(w.jobs[name])
			}
		},
		"unlock": func(w *world, ws words, _ []string) {
			for _, name := range ws.bare {
				w.locks[name].Abort()
			}
		},
		"done": func(w *world, ws words, _ []string) {
			w.result(ws, Result{OK: true, Value: []byte(ws.args["result"])})
		},
		"fail":    (*world).cmdFail,
		"request": (*world).cmdRequest,
		"spawn":   (*world).cmdSpawn,
		"abandon": func(w *world, ws words, _ []string) { w.step(Abandoned{Job: w.jobs[ws.bare[0]]}) },
		"cancel": func(w *world, ws words, _ []string) {
			w.step(CancelRequested{Jobs: []dispatcherd.JobID{w.jobs[ws.bare[0]]}})
		},
		"return": func(w *world, ws words, _ []string) { w.result(ws, Result{Returned: true}) },
		"disown": func(w *world, _ words, _ []string) { w.step(Disowned{}) },
		"own":    func(w *world, _ words, _ []string) { w.step(Owned{}); w.answerAll() },
		"drain":  func(w *world, _ words, _ []string) { w.step(Drained{}) },
		"pause":  (*world).cmdPause,
		"retries": func(w *world, ws words, _ []string) {
			w.controls.Retries = maps.Clone(w.controls.Retries)
			if w.controls.Retries == nil {
				w.controls.Retries = map[string]contract.RetryPolicy{}
			}
			w.controls.Retries[ws.bare[0]] = contract.RetryPolicy{MaxAttempts: ws.int("tries", 0), Backoff: ws.args["backoff"]}
			w.control()
		},
		"resume": func(w *world, ws words, _ []string) {
			w.controls.Pauses = slices.DeleteFunc(w.controls.Pauses, func(p contract.Pause) bool { return p.Type == ws.bare[0] })
			w.control()
		},
		"drain-worker": (*world).cmdDrainWorker,
		"resume-worker": func(w *world, ws words, _ []string) {
			w.controls.Drains = slices.DeleteFunc(w.controls.Drains, func(d contract.Drain) bool { return d.Worker == ws.bare[0] })
			w.control()
		},
		"handover": func(w *world, _ words, _ []string) { w.step(HandedOver{}) },
		"interrupt": func(w *world, _ words, _ []string) {
			w.step(Interrupted{})
		},
		"listening": (*world).cmdListening,
		"postgres":  func(w *world, ws words, _ []string) { w.down = ws.bare[0] == "down" },
		"show":      func(w *world, ws words, _ []string) { w.printed[effectName(ws.bare[0])] = true },
		"slots":     (*world).cmdSlots,
		"share":     (*world).cmdShare,
		"stats":     (*world).cmdStats,
		"table":     (*world).cmdTable,
		"wakes":     (*world).cmdWakes,
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// effectName checks the name of a statement.
func effectName(name string) string {
	if !slices.Contains([]string{"fetch", "backfill", "claim", "resolve", "load", "adopt", "finish", "spawn", "set-gate"}, name) {
		panic("unknown statement " + name)
	}
	return name
}

// cmdConfig restarts the dispatcher with other limits.
func (w *world) cmdConfig(ws words, _ []string) {
	d := w.at
	l := &d.cfg.Limits
	l.Slots = ws.int("slots", l.Slots)
	l.Types = ws.int("types", l.Types)
	l.SlotTypes = ws.int("slot-types", l.SlotTypes)
	l.Requests = ws.int("requests", l.Requests)
	l.ClaimBatch = ws.int("claim-batch", l.ClaimBatch)
	d.cfg.LaneLength = ws.int("lane-length", d.cfg.LaneLength)
	d.cfg.LanesPerFetch = ws.int("lanes-per-fetch", d.cfg.LanesPerFetch)
	l.Unfinished = ws.int("unfinished", l.Unfinished)
	l.Finishes = ws.int("finishes", l.Finishes)
	l.Crashes = ws.int("crashes", l.Crashes)
	l.OpenSpawns = ws.int("open-spawns", l.OpenSpawns)
	d.cfg.ReconnectGrace = cmp.Or(ws.duration("reconnect-grace"), d.cfg.ReconnectGrace)
	d.cfg.Resume = cmp.Or(ws.duration("resume"), d.cfg.Resume)
	d.cfg.RemoteResume = cmp.Or(ws.duration("remote-resume"), d.cfg.RemoteResume)
	d.cfg.Weights.OnDemandCap = cmp.Or(ws.duration("cap"), d.cfg.Weights.OnDemandCap)
	d.cfg.Weights.DurationWindow = cmp.Or(ws.duration("duration-window"), d.cfg.Weights.DurationWindow)
	d.cfg.Poll = cmp.Or(ws.duration("poll"), d.cfg.Poll)
	d.cfg.PollUnsubscribed = cmp.Or(ws.duration("poll-unsubscribed"), d.cfg.PollUnsubscribed)
	d.cfg.CancelGrace = cmp.Or(ws.duration("cancel-grace"), d.cfg.CancelGrace)
	if typ := ws.args["timeout-of"]; typ != "" {
		d.cfg.Timeouts = map[string]time.Duration{typ: ws.duration("timeout")}
	}
	d.core = New(d.cfg)
}

func (w *world) cmdRegister(ws words, _ []string) {
	d := w.at
	worker := ws.args["worker"]
	id, ok := d.sessions[worker]
	if late := ws.args["late"] != ""; !late && (!ok || d.workers[id] == "" || d.core.sessions[id] == nil) {
		id = d.newSession(worker)
	}
	ev := Registered{
		Session:      id,
		Worker:       worker,
		Process:      ws.args["process"],
		User:         ws.args["user"],
		Fingerprint:  d.fingerprint(id),
		NotResumable: ws.args["resumes"] == "no",
		Remote:       ws.args["remote"] != "",
		Moves:        ws.args["moves"] != "",
	}
	for _, types := range sets(ws.args["types"]) {
		for range ws.int("slots", 1) {
			number := ws.int("number", d.types[id])
			ev.Slots = append(ev.Slots, dispatcherd.Slot{ID: d.nextSlot, Number: int32(number), Types: types})
			d.nextSlot++
			d.types[id] = max(d.types[id], number+1)
		}
	}
	w.step(ev)
}

func (d *dispatcher) newSession(worker string) dispatcherd.SessionID {
	id := dispatcherd.SessionID(len(d.workers) + 1)
	d.sessions[worker], d.workers[id] = id, worker
	return id
}

// cmdOffer connects a worker anew. The worker offers to resume jobs of its latest
// session with the dispatcher named by from, by default the current one. Each job
// is on a slot of the given types.
func (w *world) cmdOffer(ws words, _ []string) {
	d, worker := w.at, ws.args["worker"]
	was := w.dispatchers[cmp.Or(ws.args["from"], d.name)]
	from := was.fingerprint(was.sessions[cmp.Or(ws.args["of"], worker)])
	id := d.newSession(worker)
	ev := Registered{
		Session: id, Worker: worker, Process: ws.args["process"], Fingerprint: d.fingerprint(id),
		Remote: ws.args["remote"] != "", Moves: ws.args["moves"] != "",
	}
	for _, name := range ws.bare {
		r := w.table.Row(w.jobs[name])
		attempt := 1
		if r != nil {
			attempt = int(r.Attempt)
		}
		ev.Offers = append(ev.Offers, ResumeOffer{
			Job:     w.jobs[name],
			Attempt: dispatcherd.Attempt(ws.int("attempt", attempt)),
			From:    from,
			To:      from.WithGeneration(ws.int("generation", 0)),
			Slot:    dispatcherd.Slot{ID: d.nextSlot, Number: int32(d.types[id]), Types: sets(ws.args["types"])[0]},
		})
		d.nextSlot++
		d.types[id]++
	}
	w.step(ev)
}

func (w *world) cmdWithdraw(ws words, _ []string) {
	ev := Withdrew{Session: w.at.sessions[ws.bare[0]]}
	for _, n := range ws.bare[1:] {
		ev.Numbers = append(ev.Numbers, int32(must(strconv.Atoi(n))))
	}
	w.step(ev)
}

// cmdInsert commits rows. With "insert alone" the transaction inserts only one
// row, so its notification names the row.
func (w *world) cmdInsert(how words, body []string) {
	var ev Event = Notified{}
	for _, line := range body {
		ws := parse(line)
		for i := range ws.int("count", 1) {
			name := ws.bare[0]
			if ws.int("count", 1) > 1 {
				name = fmt.Sprintf("%s-%d", name, i+1)
			}
			w.nextRow++
			if of := ws.int("share", 0); of > 0 { // the next id in this half of the id range
				for half := contract.ShareOf(1, contract.Others{SmallerIDs: of - 1, LargerIDs: 2 - of, Least: 1}); !half.Owns(w.nextRow); {
					w.nextRow++
				}
			}
			w.jobs[name], w.names[w.nextRow] = w.nextRow, name
			w.table.insert(claimfake.Row{
				ID: w.nextRow, Type: ws.args["type"], Priority: dispatcherd.Priority(ws.int("prio", 0)),
				RunAt:       w.table.now - ws.duration("age").Microseconds() + ws.duration("in").Microseconds(),
				MaxAttempts: int32(ws.int("tries", 3)), Timeout: ws.duration("timeout"), Expected: ws.duration("expected"),
				Backoff: ws.args["backoff"],
			})
			switch r := w.table.Row(w.nextRow); {
			case len(how.bare) == 0:
			case how.bare[0] == "alone":
				ev = Announced{
					Row: contract.RowNotification{Type: r.Type, Priority: r.Priority, Class: dispatcherd.ClassOf(r.Expected), Key: r.Key()},
				}
			case how.bare[0] == "admitted":
				ev = Admitted{Rows: []contract.RowNotification{{Type: r.Type, Priority: r.Priority, Key: r.Key()}}}
			}
		}
	}
	for _, name := range w.dispatcherNames() {
		d := w.dispatchers[name]
		if d.core.backlog.Subscribed() && !d.notListening {
			at := w.at
			w.at = d
			w.step(ev)
			w.at = at
		}
	}
}

func (w *world) dispatcherNames() []string {
	var names []string
	for n := range w.dispatchers {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}

// cmdPause pauses a type: pause pdf what=queued for=1h.
func (w *world) cmdPause(ws words, _ []string) {
	p := contract.Pause{Type: ws.bare[0], What: cmp.Or(ws.args["what"], contract.PauseAll), By: "alice", Reason: "maintenance"}
	if length := ws.duration("for"); length > 0 {
		p.Until = new(time.UnixMicro(w.table.now).Add(length))
	}
	w.controls.Pauses = append(slices.DeleteFunc(w.controls.Pauses, func(o contract.Pause) bool { return o.Type == p.Type }), p)
	w.control()
}

// cmdDrainWorker drains a worker, or some of its types, or one of its processes: drain-worker w types=(pdf) process=p.
func (w *world) cmdDrainWorker(ws words, _ []string) {
	d := contract.Drain{Worker: ws.bare[0], Process: ws.args["process"], By: "alice"}
	if types := ws.args["types"]; types != "" {
		d.Types = sets(types)[0]
	}
	same := func(o contract.Drain) bool { return o.Worker == d.Worker && o.Process == d.Process }
	w.controls.Drains = append(slices.DeleteFunc(w.controls.Drains, same), d)
	w.control()
}

// control makes a dispatcher follow the controls.
func (w *world) control() {
	w.controls.Version++
	w.controls.Clock = time.UnixMicro(w.table.now)
	w.step(Controlled(w.controls))
	_, running := w.at.core.Controls()
	for _, drain := range slices.Sorted(maps.Keys(running)) {
		w.printf("drained %s: %d running", drain, running[drain])
	}
}

// cmdClock advances one of the two clocks.
func (w *world) cmdClock(ws words, _ []string) {
	d := must(time.ParseDuration(ws.bare[1]))
	switch ws.bare[0] {
	case "database":
		w.table.now += d.Microseconds()
	case "local":
		w.now = w.now.After(d)
	default:
		w.t.Fatalf("no clock %q", ws.bare[0])
	}
}

func (w *world) cmdNotify(ws words, _ []string) {
	for range ws.int("count", 1) {
		w.step(Notified{})
	}
}

func (w *world) cmdListening(ws words, _ []string) {
	on := ws.bare[0] == "on"
	w.at.notListening = !on
	w.step(Listening{On: on})
}

// cmdAnswer answers the oldest held statement of a name.
func (w *world) cmdAnswer(ws words, _ []string) {
	statement := effectName(ws.bare[0])
	i := slices.IndexFunc(w.at.pending, func(e effect.Effect) bool { return nameOf(e) == statement })
	require.GreaterOrEqual(w.t, i, 0, "no %s is in flight", ws.bare[0])
	v := contract.OK
	if len(ws.bare) > 1 {
		v = map[string]contract.Verdict{"ok": 0, "refused": 1, "unknown": 2}[ws.bare[1]]
	}
	w.answer(i, v)
}

// cmdLose executes a statement and loses its answer.
func (w *world) cmdLose(ws words, _ []string) {
	statement := effectName(ws.bare[0])
	i := slices.IndexFunc(w.at.pending, func(e effect.Effect) bool { return nameOf(e) == statement })
	require.GreaterOrEqual(w.t, i, 0, "no %s is in flight", statement)
	switch e := w.at.pending[i].(type) {
	case *effect.Claim:
		w.table.claim(w.at.id, e.Request)
	case *effect.Adopt:
		w.table.adopt(w.at.id, e.Request)
	case *effect.Finish:
		w.table.finish(w.at.id, e.Request)
	}
	w.answer(i, contract.Unknown)
}

// cmdRead reads the table for a held fetch, or with "read backfill" for a held
// backfill scan. The answer, which comes later, contains this result.
func (w *world) cmdRead(ws words, _ []string) {
	statement := "fetch"
	if len(ws.bare) > 0 {
		statement = effectName(ws.bare[0])
	}
	i := slices.IndexFunc(w.at.pending, func(e effect.Effect) bool { return nameOf(e) == statement })
	require.GreaterOrEqual(w.t, i, 0, "no fetch is in flight")
	req := w.at.pending[i].(*effect.Fetch).Request
	w.at.read[req] = w.table.fetch(req)
}

// cmdSteal makes another dispatcher claim rows.
func (w *world) cmdSteal(ws words, _ []string) {
	for _, name := range ws.bare {
		w.table.steal(9, w.table.Row(w.jobs[name]), 0)
	}
}

// cmdShare sets the slots of other dispatchers for a type, as a heartbeat does:
// share pdf smaller-ids=1 own=1 larger-ids=2.
func (w *world) cmdShare(ws words, _ []string) {
	smaller, larger := ws.int("smaller-ids", 0), ws.int("larger-ids", 0)
	w.step(ClusterCapacity{
		Capacity: map[string]int{ws.bare[0]: smaller + larger},
		Shares: map[string]contract.Share{
			ws.bare[0]: contract.ShareOf(ws.int("own", 1), contract.Others{SmallerIDs: smaller, LargerIDs: larger, Least: 1}),
		},
	})
}

func (w *world) result(ws words, r Result) {
	r.Job = w.jobs[ws.bare[0]]
	j := w.at.core.jobs[r.Job]
	session := w.at.sessions[ws.args["worker"]]
	if session == 0 && j != nil {
		session = j.sentTo
	}
	attempt := 0
	if j != nil {
		attempt = int(j.attempt)
	}
	r.Attempt = dispatcherd.Attempt(ws.int("attempt", attempt))
	w.step(Released{Session: session, Results: []Result{r}})
}

func (w *world) cmdFail(ws words, _ []string) {
	w.result(ws, Result{
		Error: cmp.Or(ws.args["error"], "boom"), Permanent: ws.args["permanent"] != "", RetryAfter: ws.duration("after"),
	})
}

func (w *world) cmdRequest(ws words, _ []string) {
	w.nextRequest--
	id, name := w.nextRequest, ws.bare[0]
	w.jobs[name], w.names[id] = id, name
	w.step(Requested{
		Job:          id,
		Type:         ws.args["type"],
		User:         ws.args["user"],
		Session:      w.at.sessions[ws.args["on"]],
		Priority:     dispatcherd.Priority(ws.int("prio", 0)),
		Class:        dispatcherd.ClassOf(ws.duration("expected")),
		Deadline:     ws.duration("deadline"),
		Wait:         ws.args["wait"] != "",
		CapacityWait: ws.duration("capacity-wait"),
	})
}

// cmdSpawn asks to insert children of a job, several times with count.
func (w *world) cmdSpawn(ws words, _ []string) {
	j := w.at.core.jobs[w.jobs[ws.bare[0]]]
	session, attempt := w.at.sessions[ws.args["worker"]], 1
	if j != nil {
		session, attempt = cmp.Or(session, j.sentTo), int(j.attempt)
	}
	first := ws.int("request", 1)
	for n := first; n < first+ws.int("count", 1); n++ {
		w.step(SpawnRequested{Request: &contract.SpawnRequest{
			Session: session,
			Parent:  w.jobs[ws.bare[0]],
			Attempt: dispatcherd.Attempt(ws.int("attempt", attempt)),
			Number:  int64(n),
			Jobs:    []byte("[]"),
		}})
	}
}

// cmdSlots prints every slot with its state.
func (w *world) cmdSlots(words, []string) {
	c := w.at.core
	for _, ref := range c.slotRefs() {
		s := c.slots[ref]
		var types []string
		for _, t := range c.index.TypesOf(ref) {
			types = append(types, c.index.Name(t))
		}
		state := "free"
		if s.job != nil {
			state = "busy with " + w.name(s.job.id)
			if s.job.state.claimPending() {
				state = "reserved for " + w.name(s.job.id)
			}
		}
		switch {
		case s.held:
			state += ", drained"
		case c.index.IsDraining(ref):
			state += ", draining"
		}
		w.printf("%s/%d (%s) %s", s.session.worker, s.number, strings.Join(types, ","), state)
	}
	if c.index.Len() == 0 {
		w.printf("none")
	}
}

// cmdSpoil makes a payload large or unreadable, or makes Postgres refuse to claim a row.
func (w *world) cmdSpoil(ws words, _ []string) {
	r := w.table.Row(w.jobs[ws.bare[0]])
	r.Payload, r.Unreadable, r.Refused = []byte("{}"), nil, nil
	switch ws.bare[1] {
	case "large":
		r.Payload = fmt.Appendf(nil, `"%s"`, strings.Repeat("x", claim.SmallPayload))
	case "unreadable":
		r.Unreadable = errors.New("missing chunk")
	case "unclaimable":
		r.Refused = errors.New("refused by a trigger")
	}
}

// cmdTable prints every row.
func (w *world) cmdTable(words, []string) {
	for _, r := range w.table.Rows() {
		w.printf("%s %s attempt %d failures %d crashes %d", w.name(r.ID), r.Status, r.Attempt, r.Failures, r.Crashes)
	}
}

// cmdStats prints the counters that are not zero.
func (w *world) cmdStats(words, []string) {
	for field := range strings.FieldsSeq(strings.Trim(fmt.Sprintf("%+v", w.at.core.Stats()), "{}")) {
		if name, n, _ := strings.Cut(field, ":"); n != "0" {
			w.printf("%s %s", strings.ToLower(name), n)
		}
	}
}

// cmdWakes prints the next wake-up time of the dispatcher.
func (w *world) cmdWakes(words, []string) {
	if at := w.at.core.NextWake(); at == timing.Never {
		w.printf("never")
	} else {
		w.printf("in %v", msDuration(int64(at-w.now)))
	}
}
