package actor

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
)

// words is a command line taken apart: bare words, and key=value pairs of
// which a value may be (a,b)(c).
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

// command runs one command and returns what was said.
func (w *world) command(line string, body []string) string {
	w.out.Reset()
	ws := parse(line)
	name := ws.bare[0]
	run, ok := commands[name]
	require.True(w.t, ok, "no command %q", name)
	ws.bare = ws.bare[1:]
	run(w, ws, body)
	if !slices.Contains(lazy, name) {
		w.settle()
	}
	return w.out.String()
}

// lazy commands leave the statements they cause to the next command.
var lazy = []string{"insert", "notify", "clock", "hold", "show", "read"}

// commands is the language of the scenario files. Statements to Postgres are
// carried out at the end of a command; hold keeps a kind of them under way
// until answer or lose says what became of it.
var commands map[string]func(*world, words, []string)

func init() {
	commands = map[string]func(*world, words, []string){
		"at":       func(w *world, ws words, _ []string) { w.use(ws.bare[0]) },
		"config":   (*world).cmdConfig,
		"register": (*world).cmdRegister,
		"present":  (*world).cmdPresent,
		"withdraw": (*world).cmdWithdraw,
		"kill":     func(w *world, ws words, _ []string) { w.step(Unregistered{Session: w.at.sessions[ws.bare[0]]}) },
		"insert":   (*world).cmdInsert,
		"notify":   (*world).cmdNotify,
		"run":      func(w *world, _ words, _ []string) { w.step(Tick{}) },
		"advance":  func(w *world, ws words, _ []string) { w.advance(must(time.ParseDuration(ws.bare[0]))) },
		"clock":    (*world).cmdClock,
		"hold":     func(w *world, ws words, _ []string) { w.at.held[effectName(ws.bare[0])] = true },
		"unhold":   func(w *world, ws words, _ []string) { delete(w.at.held, effectName(ws.bare[0])) },
		"answer":   (*world).cmdAnswer,
		"lose":     (*world).cmdLose,
		"read":     (*world).cmdRead,
		"steal":    (*world).cmdSteal,
		"lock":     func(w *world, ws words, _ []string) { w.table.rows[w.jobs[ws.bare[0]]].locked = true },
		"unlock":   func(w *world, ws words, _ []string) { w.table.rows[w.jobs[ws.bare[0]]].locked = false },
		"done":     func(w *world, ws words, _ []string) { w.result(ws, Result{OK: true, Value: []byte(ws.args["result"])}) },
		"fail":     (*world).cmdFail,
		"request":  (*world).cmdRequest,
		"hangup":   func(w *world, ws words, _ []string) { w.step(Abandoned{Job: w.jobs[ws.bare[0]]}) },
		"cancel": func(w *world, ws words, _ []string) {
			w.step(CancelRequested{Jobs: []dispatcherd.JobID{w.jobs[ws.bare[0]]}})
		},
		"giveback": func(w *world, ws words, _ []string) { w.result(ws, Result{Returned: true}) },
		"disown":   func(w *world, _ words, _ []string) { w.step(Disowned{}) },
		"own":      func(w *world, _ words, _ []string) { w.step(Owned{}); w.settle() },
		"drain":    func(w *world, _ words, _ []string) { w.step(Drained{}) },
		"handover": func(w *world, _ words, _ []string) { w.step(HandedOver{}) },
		"interrupt": func(w *world, _ words, _ []string) {
			w.step(Interrupted{})
		},
		"listening": (*world).cmdListening,
		"postgres":  func(w *world, ws words, _ []string) { w.down = ws.bare[0] == "down" },
		"show":      func(w *world, ws words, _ []string) { w.shown[effectName(ws.bare[0])] = true },
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
	if !slices.Contains([]string{"fetch", "look", "claim", "resolve", "adopt", "finish", "set-gate"}, name) {
		panic("no statement is called " + name)
	}
	return name
}

// cmdConfig starts the dispatcher anew with other limits.
func (w *world) cmdConfig(ws words, _ []string) {
	d := w.at
	l := &d.cfg.Limits
	l.Slots = ws.int("slots", l.Slots)
	l.Types = ws.int("types", l.Types)
	l.Requests = ws.int("requests", l.Requests)
	l.ClaimBatch = ws.int("claim-batch", l.ClaimBatch)
	l.LaneLength = ws.int("lane-length", l.LaneLength)
	l.LanesPerFetch = ws.int("lanes-per-fetch", l.LanesPerFetch)
	l.Unfinished = ws.int("unfinished", l.Unfinished)
	l.Finishes = ws.int("finishes", l.Finishes)
	l.Crashes = ws.int("crashes", l.Crashes)
	d.cfg.ReconnectGrace = cmp.Or(ws.duration("comeback"), d.cfg.ReconnectGrace)
	d.cfg.Resume = cmp.Or(ws.duration("resume"), d.cfg.Resume)
	d.cfg.Weights.OnDemandCap = cmp.Or(ws.duration("cap"), d.cfg.Weights.OnDemandCap)
	d.cfg.Poll = cmp.Or(ws.duration("poll"), d.cfg.Poll)
	d.cfg.PollUnsubscribed = cmp.Or(ws.duration("poll-deaf"), d.cfg.PollUnsubscribed)
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
	ev := Registered{Session: id, Worker: worker, Fingerprint: d.mark(id), NotResumable: ws.args["resumes"] == "no"}
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

// cmdPresent lets a worker connect anew and bring along jobs of its latest
// session with the dispatcher that from names (this one by default): each in a
// slot of the given types.
func (w *world) cmdPresent(ws words, _ []string) {
	d, worker := w.at, ws.args["worker"]
	was := w.dispatchers[cmp.Or(ws.args["from"], d.name)]
	from := was.mark(was.sessions[cmp.Or(ws.args["of"], worker)])
	id := d.newSession(worker)
	ev := Registered{Session: id, Worker: worker, Fingerprint: d.mark(id)}
	for _, name := range ws.bare {
		r := w.table.rows[w.jobs[name]]
		attempt := 1
		if r != nil {
			attempt = int(r.attempt)
		}
		ev.Offers = append(ev.Offers, ResumeOffer{
			Job: w.jobs[name], Attempt: dispatcherd.Attempt(ws.int("attempt", attempt)), From: from, To: from.WithGeneration(ws.int("times", 0)),
			Slot: dispatcherd.Slot{ID: d.nextSlot, Number: int32(d.types[id]), Types: sets(ws.args["types"])[0]},
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

// cmdInsert commits rows; "insert alone" those of a transaction that is seen to
// insert one, so that the notification names it.
func (w *world) cmdInsert(how words, body []string) {
	var news Event = Notified{}
	for _, line := range body {
		ws := parse(line)
		for i := range ws.int("count", 1) {
			name := ws.bare[0]
			if ws.int("count", 1) > 1 {
				name = fmt.Sprintf("%s-%d", name, i+1)
			}
			w.nextRow++
			if of := ws.int("of", 0); of > 0 { // the next id of the share of half
				for half := contract.ShareOf(1, contract.Others{SmallerIDs: of - 1, LargerIDs: 2 - of, Least: 1}); !half.Owns(w.nextRow); {
					w.nextRow++
				}
			}
			w.jobs[name], w.names[w.nextRow] = w.nextRow, name
			w.table.insert(row{
				id: w.nextRow, typ: ws.args["type"], priority: dispatcherd.Priority(ws.int("prio", 0)),
				runAt: w.table.now - ws.duration("age").Microseconds() + ws.duration("in").Microseconds(),
				tries: int32(ws.int("tries", 3)), timeout: ws.duration("timeout"),
			})
			if r := w.table.rows[w.nextRow]; len(how.bare) > 0 && how.bare[0] == "alone" {
				news = Announced{contract.RowNotification{Type: r.typ, Priority: r.priority, Key: contract.Key{RunAt: r.runAt, ID: r.id}}}
			}
		}
	}
	for _, name := range w.dispatcherNames() {
		d := w.dispatchers[name]
		if d.core.backlog.Subscribed() && !d.deaf {
			at := w.at
			w.at = d
			w.step(news)
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

// cmdClock moves one of the clocks alone.
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
	w.at.deaf = ws.bare[0] == "off"
	w.step(Listening{On: !w.at.deaf})
}

// cmdAnswer answers the oldest statement of a kind that is held.
func (w *world) cmdAnswer(ws words, _ []string) {
	kind := effectName(ws.bare[0])
	i := slices.IndexFunc(w.at.pending, func(e Effect) bool { return nameOf(e) == kind })
	require.GreaterOrEqual(w.t, i, 0, "no %s is under way", ws.bare[0])
	v := contract.OK
	if len(ws.bare) > 1 {
		v = map[string]contract.Verdict{"ok": 0, "refused": 1, "unknown": 2}[ws.bare[1]]
	}
	w.answer(i, v)
}

// cmdLose carries a statement out but loses its answer.
func (w *world) cmdLose(ws words, _ []string) {
	kind := effectName(ws.bare[0])
	i := slices.IndexFunc(w.at.pending, func(e Effect) bool { return nameOf(e) == kind })
	require.GreaterOrEqual(w.t, i, 0, "no %s is under way", kind)
	switch e := w.at.pending[i].(type) {
	case *Claim:
		w.table.claim(w.at.id, e.Request)
	case *Adopt:
		w.table.adopt(w.at.id, e.Request)
	case *Finish:
		w.table.finish(w.at.id, e.Request)
	}
	w.answer(i, contract.Unknown)
}

// cmdRead lets Postgres answer a fetch that is held: what the table looks like
// now is in the answer, however late it arrives. read look: the same for a look.
func (w *world) cmdRead(ws words, _ []string) {
	kind := "fetch"
	if len(ws.bare) > 0 {
		kind = effectName(ws.bare[0])
	}
	i := slices.IndexFunc(w.at.pending, func(e Effect) bool { return nameOf(e) == kind })
	require.GreaterOrEqual(w.t, i, 0, "no fetch is under way")
	req := w.at.pending[i].(*Fetch).Request
	w.at.read[req] = w.table.fetch(req)
}

// cmdSteal lets some other dispatcher take rows.
func (w *world) cmdSteal(ws words, _ []string) {
	for _, name := range ws.bare {
		r := w.table.rows[w.jobs[name]]
		r.status, r.dispatcher = dispatcherd.Running, 99
		r.attempt++
	}
}

// cmdShare tells of the slots that dispatchers before and behind this one have
// for a type, as a beat does: share pdf before=1 own=1 behind=2.
func (w *world) cmdShare(ws words, _ []string) {
	before, behind := ws.int("before", 0), ws.int("behind", 0)
	w.step(ClusterCapacity{
		Capacity: map[string]int{ws.bare[0]: before + behind},
		Shares:   map[string]contract.Share{ws.bare[0]: contract.ShareOf(ws.int("own", 1), contract.Others{SmallerIDs: before, LargerIDs: behind, Least: 1})},
	})
}

func (w *world) result(ws words, r Result) {
	r.Job = w.jobs[ws.bare[0]]
	j := w.at.core.jobs.get(r.Job)
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
		Job: id, Type: ws.args["type"], Priority: dispatcherd.Priority(ws.int("prio", 0)),
		Deadline: ws.duration("deadline"), Wait: ws.args["wait"] != "", Patience: ws.duration("patience"),
	})
}

// cmdSlots prints every slot with what it does.
func (w *world) cmdSlots(words, []string) {
	c := w.at.core
	for _, ref := range c.index.Slots() {
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
		if c.index.IsDraining(ref) {
			state += ", draining"
		}
		w.say("%s/%d (%s) %s", s.session.worker, s.number, strings.Join(types, ","), state)
	}
	if c.index.Len() == 0 {
		w.say("none")
	}
}

// cmdTable prints every row.
func (w *world) cmdTable(words, []string) {
	for _, r := range w.table.sorted() {
		w.say("%s %s attempt %d failures %d crashes %d", w.name(r.id), r.status, r.attempt, r.failures, r.crashes)
	}
}

// cmdStats prints the counters that are not zero.
func (w *world) cmdStats(words, []string) {
	for field := range strings.FieldsSeq(strings.Trim(fmt.Sprintf("%+v", w.at.core.Stats()), "{}")) {
		if name, n, _ := strings.Cut(field, ":"); n != "0" {
			w.say("%s %s", strings.ToLower(name), n)
		}
	}
}

// cmdWakes prints when the dispatcher wants to be woken without an event.
func (w *world) cmdWakes(words, []string) {
	if at := w.at.core.NextWake(); at == Never {
		w.say("never")
	} else {
		w.say("in %v", msDuration(int64(at-w.now)))
	}
}
