package contract

import "time"

// Origin names the dispatcher to which an element of a list belongs.
type Origin struct {
	Dispatcher     int32  `json:"dispatcher,omitempty"` // id
	DispatcherName string `json:"dispatcher_name,omitempty"`
}

// Worker is one worker as the API shows it.
type Worker struct {
	Origin

	Session  int64    `json:"session"`
	Worker   string   `json:"worker"`
	UID      int      `json:"uid"` // of its process; -1 = unknown
	PID      int      `json:"pid"`
	User     string   `json:"user"`              // whose shares it uses: "uid 1001", a token, or "cert " and a certificate
	Address  string   `json:"address,omitempty"` // of its host, over TCP
	Moves    bool     `json:"moves,omitempty"`   // it knows other dispatchers, so it leaves a drained one
	Slots    int      `json:"slots"`
	Free     int      `json:"free"`
	Draining int      `json:"draining"` // slots that take no more jobs
	Types    []string `json:"types"`    // of its slots, by name, the first 20
	AllTypes int      `json:"type_count"`
	// What an operator has drained; absent: nothing.
	Drain *Drain `json:"drain,omitempty"`
}

// Type is one type at one dispatcher, as the API shows it. Of a type of which no dispatcher has a slot or a waiting job in memory,
// there is one without a dispatcher.
type Type struct {
	Origin

	Type       string `json:"type"`
	Capacity   int    `json:"capacity"` // slots that support the type, free or busy
	Free       int    `json:"free"`
	OtherSlots int    `json:"other_slots"` // slots of other dispatchers that support the type
	// pending rows in Postgres, whichever dispatcher will run them; 10,001 means more than 10,000; absent while they are not counted
	Pending     *int    `json:"pending,omitempty"`
	Known       int     `json:"known"`                // of the pending rows, those that the dispatcher has read
	Requests    int     `json:"requests"`             // on-demand requests that wait
	Oldest      float64 `json:"oldest_seconds"`       // age of the oldest other waiting job; of an unknown type, when the rows were counted
	OldestKeyed float64 `json:"oldest_keyed_seconds"` // age of the oldest job that waits for permits, when the rows were counted
	// Who has paused it, until when and why; absent: it is not paused.
	Pause *Pause `json:"pause,omitempty"`
	// How its failed jobs are retried; absent: as the dispatchers say.
	Retries *RetryPolicy `json:"retries,omitempty"`
}

// TypePage is a page of types, by name.
type TypePage struct {
	Page[Type]

	// Time since the latest count of the pending rows; before the first count, since the start.
	PendingAge float64 `json:"pending_age_seconds"`
}

// SlotCounts are numbers of slots.
type SlotCounts struct {
	Slots    int `json:"slots"`
	Free     int `json:"free"`
	Reserved int `json:"reserved"` // a job is chosen, and its claim is not answered
	Busy     int `json:"busy"`     // a job runs
	Drained  int `json:"drained"`  // no job runs, and an operator has drained them
}

// Summary is what a dispatcher says of itself while callers look at the cluster.
type Summary struct {
	SlotCounts

	PerSecond float64 `json:"ended_per_second"` // attempts that ended, over the last minute
	Failures  int     `json:"failures"`         // attempts that failed or crashed in the last hour, also those that are retried
	Alarms    []Alarm `json:"alarms,omitempty"`

	Workers  []Worker `json:"workers,omitempty"`
	SlotList []Slot   `json:"slot_list,omitempty"`
	Types    []Type   `json:"types,omitempty"`
	CutAt    int      `json:"cut_at,omitempty"` // each of the lists has at most so many elements, and others are left out
}

// Cut leaves out what is beyond the first elements of each list. It returns how many elements that are in all lists.
func (s *Summary) Cut(most int) (left int) {
	all := len(s.Workers) + len(s.SlotList) + len(s.Types)
	s.Workers, s.SlotList, s.Types = head(s.Workers, most), head(s.SlotList, most), head(s.Types, most)
	if left = all - len(s.Workers) - len(s.SlotList) - len(s.Types); left > 0 {
		s.CutAt = most
	}
	return left
}

// Add adds the numbers of another summary.
func (s *Summary) Add(o *Summary) {
	s.Slots, s.Free, s.Reserved, s.Busy = s.Slots+o.Slots, s.Free+o.Free, s.Reserved+o.Reserved, s.Busy+o.Busy
	s.Drained += o.Drained
	s.PerSecond, s.Failures = s.PerSecond+o.PerSecond, s.Failures+o.Failures
}

func head[T any](list []T, most int) []T { return list[:min(len(list), most)] }

// Status is the state of a cluster.
type Status struct {
	At          time.Time    `json:"at"`          // when it was read, by the clock of Postgres
	Dispatchers []Member     `json:"dispatchers"` // without their lists
	Total       Summary      `json:"total"`       // of all dispatchers
	Types       []TypeStatus `json:"types"`       // the longest wait first, at most 100
	MoreTypes   int          `json:"more_types,omitempty"`
	Window      float64      `json:"window_seconds"`      // W: no job overtakes one that arrived so much earlier; 0 = there is no bound
	PendingAge  float64      `json:"pending_age_seconds"` // time since the pending jobs were counted
	Alarms      []Alarm      `json:"alarms"`
	Notes       []string     `json:"notes,omitempty"` // which numbers are old or missing
}

// Conceal implements Confidential.
func (s *Status) Conceal() {
	for i := range s.Alarms {
		if a := &s.Alarms[i]; a.Kind == FlowSetAside {
			a.Text = a.About + " is set aside"
		}
	}
}

// FlowSetAside is the kind of alarms about batches and flows that are set aside.
const FlowSetAside = "flow_set_aside"

// States of a Member.
const (
	RunningDispatcher = "running"
	drainedDispatcher = "drained"
	LostDispatcher    = "lost"
)

// Member is a dispatcher of a cluster, with what it has said of itself.
type Member struct {
	ID           int32      `json:"id"`
	Name         string     `json:"name"`
	Self         bool       `json:"self"` // it answers this call
	State        string     `json:"state" enum:"running,drained,leaving,lost"`
	Answered     bool       `json:"answered"` // in time, so its numbers are the present ones
	StartedAt    time.Time  `json:"started_at"`
	HeartbeatAge float64    `json:"heartbeat_age_seconds"`
	WrittenAt    *time.Time `json:"as_of,omitempty"` // when it wrote its numbers; absent: they are missing
	ReadAt       time.Time  `json:"-"`               // when they were read; both by the clock of Postgres
	Text         []byte     `json:"-"`               // the Summary as JSON; nil = there is none
	// Troubles are, of the dispatcher that asks, what is wrong in tables, as JSON: [[kind, name, why], …]; nil = nothing.
	Troubles []byte `json:"-"`

	Summary
}

// Lives reports whether a dispatcher is running or drained: it neither leaves nor is lost.
func (m *Member) Lives() bool { return m.State == RunningDispatcher || m.State == drainedDispatcher }

// TypeStatus is a type in a Status, at all dispatchers.
type TypeStatus struct {
	Type     string  `json:"type"`
	Slots    int     `json:"slots"`
	Free     int     `json:"free"`
	Pending  *int    `json:"pending,omitempty"` // as in Type
	Known    int     `json:"known"`             // of the pending rows, those that the dispatcher which knows most has read
	Requests int     `json:"requests"`
	Oldest   float64 `json:"oldest_seconds"` // how long the oldest job or request has waited
	Pause    *Pause  `json:"pause,omitempty"`
}

// Waiting returns how many jobs and requests wait. If there are more pending rows than are counted, it is a lower bound.
func (t *TypeStatus) Waiting() (n int, exact bool) {
	n = t.Known // jobs may have arrived since the count
	if t.Pending != nil {
		n = max(n, *t.Pending)
	}
	return min(n, PendingLimit) + t.Requests, t.Pending != nil && n <= PendingLimit
}

// Alarm is something that an operator should look at.
type Alarm struct {
	Kind  string `json:"kind"`
	About string `json:"about,omitempty"` // the type, dispatcher, schedule or flow
	Text  string `json:"text"`
}
