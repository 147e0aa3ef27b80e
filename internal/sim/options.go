package sim

import (
	"fmt"
	"time"
)

// Faults is a set of faults.
type Faults uint32

// The faults.
const (
	Crash       Faults = 1 << iota // kill -9 of dispatchers; statements in flight may or may not commit
	Stop                           // SIGSTOP and SIGCONT of dispatchers
	Restart                        // SIGTERM of dispatchers: they drain, leave and start again
	Clocks                         // clocks of hosts run fast or slow and jump; the database clock jumps
	Unreachable                    // Postgres restarts or cannot be reached for a while
	Unknown                        // statements or their answers are lost, or arrive long after the client gave up
	Slow                           // statements take up to 2,000 times as long
	Notify                         // notifications are lost, late or duplicated; the connection of the listener breaks
	Kill                           // kill -9 of workers
	Suspend                        // SIGSTOP and SIGCONT of workers
	Cut                            // connections between workers and dispatchers break
	Shuffle                        // workers remove and add slots, and drain
	Late                           // inserts commit long after they began; run_at is in the past
	Resume                         // connections and dispatchers fail while workers keep their executions and offer to resume them
	HandOver                       // SIGTERM of dispatchers that hand their running jobs over to the next one
	// Rows with large or unreadable payloads, rows that Postgres refuses to claim, rows that are locked or change
	// their lane.
	Rows
	Keys            // jobs with keys
	Joins           // batches, flows and children
	Expected        // jobs and requests with expected durations, which count
	Remote          // workers are connected over a network that fails, and go from one live dispatcher to another
	Nothing  Faults = 0
	All      Faults = 1<<(iota-1) - 1
)

// detachFaults are the faults that concern detached executions. They use their
// own random source; see pickDetachment.
const detachFaults = Resume | HandOver

// A Break removes one safeguard, as a negative control of the checks.
type Break uint8

// The safeguards that can be removed.
const (
	Intact             Break = iota
	WithoutFence             // a finish compares neither attempt nor dispatcher
	WithoutStatus            // a claim does not require that the row is pending
	WithoutPoll              // dispatchers read rows only after a notification
	WithoutLease             // a claim does not require that its dispatcher holds the lease
	WithoutReturn            // the core does not learn that a row that it released is pending again
	WithoutEpoch             // resolving a claim does not exclude a late copy of it
	WithoutTakeover          // jobs of lost dispatchers are not released
	WithoutRelease           // the job of a slot that is gone is not released
	WithoutEnd               // the core does not learn that a session has ended
	WithoutFingerprint       // an adoption does not compare the session fingerprint
	WithoutAttempt           // an adoption does not compare the attempt
	WithoutGeneration        // an adoption does not compare the generation of the resume offer
	WithoutMembership        // an adoption does not require that its dispatcher holds the lease
	WithoutHold              // a hand-over releases the rows that it hands over
	WithoutGrace             // a dispatcher does not wait for running jobs after SIGTERM
	WithoutDeadline          // a claim does not say how much time a durable request has left
	WithoutPermit            // a claim does not require that a job with keys has its permits
	WithoutNumber            // statements of earlier books admit jobs
	WithoutHeld              // a new book does not know which jobs have permits
	WithoutRecord            // the end of a job that fails is not recorded for the jobs that wait for it
	WithoutCounted           // a step of a batch or flow leaves the messages that it counts
	WithoutRecorded          // a seal does not count ends that are recorded and not counted
	WithoutLinked            // a dependency outside of the flow is counted again
	WithoutRunWhen           // a waiting job runs whatever its run_when says
	WithoutChildren          // the end of a job does not cancel its children
	WithoutParent            // children are inserted although their parent does not run
	WithoutEnds              // heartbeats do not find recorded ends
	WithoutGuard             // a remote worker does not give its executions up in time
	WithoutParting           // a dispatcher takes the end of a remote session for the death of the worker
)

var breakNames = [...]string{
	"intact",
	"without fence",
	"without status",
	"without poll",
	"without lease",
	"without return",
	"without epoch",
	"without takeover",
	"without release",
	"without end",
	"without fingerprint",
	"without attempt",
	"without generation",
	"without membership",
	"without hold",
	"without grace",
	"without deadline",
	"without permit",
	"without number",
	"without held",
	"without record",
	"without counted",
	"without recorded",
	"without linked",
	"without run_when",
	"without children",
	"without parent",
	"without ends",
	"without guard",
	"without parting",
}

// String returns the name of the safeguard.
func (b Break) String() string { return breakNames[b] }

// Options select a world. The seed determines everything that they leave open.
type Options struct {
	Seed        uint64
	Steps       int    // events with faults; 0 = DefaultSteps
	Dispatchers int    // 1 to 4; 0 = determined by the seed
	Faults      Faults // permitted faults; the seed selects some of them unless Every is set
	Every       bool   // all of Faults occur
	Break       Break
	NoPoll      bool // dispatchers read rows only after a notification
	// SlowScans makes full scans and backfill scans take as long as under a
	// snapshot that was held for minutes.
	SlowScans bool
}

// DefaultSteps is the default of Options.Steps.
const DefaultSteps = 60_000

func (o Options) withDefaults() Options {
	if o.Steps == 0 {
		o.Steps = DefaultSteps
	}
	o.NoPoll = o.NoPoll || o.Break == WithoutPoll
	if o.Dispatchers < 0 || o.Dispatchers > maxHosts {
		panic(fmt.Sprintf("sim: %d dispatchers, must be 0 to %d", o.Dispatchers, maxHosts))
	}
	return o
}

const maxHosts = 4

// A Violation is the first violated guarantee of a run.
type Violation struct {
	Event int           // number of events before it
	At    time.Duration // simulated time since the start
	What  string
}

// String returns the violation with its event and time.
func (v *Violation) String() string {
	return fmt.Sprintf("after %d events, at %v: %s", v.Event, v.At, v.What)
}

// Result is the outcome of a run.
type Result struct {
	Events    int           // steps of cores, messages, statements and faults
	Elapsed   time.Duration // simulated time
	Hash      uint64        // of all effects of all cores, in order
	Stats     Stats
	Violation *Violation // the first one, or nil
}

// Stats count what happened in a run, so that a test can require that a fault
// occurred.
type Stats struct {
	Steps                                      int // of cores
	Jobs, Done, Failed, Cancelled              int // rows, by final status
	Claims, Won, Skipped                       int // claim statements; rows that they won and did not win
	Finishes, Stale                            int // items of finishes; items that changed nothing
	TakenOver, Rejoined                        int // rows of lost dispatchers that were released; leases found lost
	Executions, Overlaps                       int // executions; executions beside an older attempt of the same job
	Calls, Answered, Abandoned                 int
	Crashes, Stops, Restarts                   int // of dispatchers
	Kills, Suspensions, Cuts                   int // of workers and connections
	Unreachable, Unknowns, Slow, LateStatement int
	Notified, LostNotifications                int
	WrongStale                                 int // ends that were recorded and reported as stale
	Deferred                                   int // ends that were deferred because their rows were locked
	LockWaits, Ticks                           int // statements that waited for a lock; timers after which a core had nothing to do
	Shared                                     int // estimates of durations of other dispatchers that were read
	Windows                                    int // comparisons of a placement with the jobs that it overtook
	Detached, Offered                          int // executions that lost their connection; resume offers
	Adopted, Resumed                           int // rows adopted; executions resumed, also under the same dispatcher
	HandedOver, NotAdopted                     int // rows handed over; of these, rows that were not adopted in time
	Loaded, SetAside                           int // payloads that were loaded; rows that a claim was refused
	RowsLocked, RowsMoved                      int // rows that other programs locked, and whose lane they changed
	BackfillScans                              int // answers to backfill scans
	HungUp, LateSlots                          int // sessions ended because a job ignored its cancel; slots added on such a session
	Reoffered                                  int // ends that were reported and offered again
	Busy                                       int // rows that an adoption found locked or changed
	Keyed, Admitted, Terms                     int // jobs with keys that were claimed; admissions; terms of controllers
	// Waiting rows that were released or cancelled; children; members that a cancelled batch refused.
	Fired, Children, Refused int
	EndsCounted              int // messages that steps of batches and flows handled
	// Executions whose resume window passed; adoptions that took a job from the dispatcher to which its worker had
	// returned.
	Expired, LateAdoptions int
	// Connections over a network that were cut; dispatchers that were cut off from Postgres; drained dispatchers; workers that
	// left them.
	Partitions, Isolations, SentAway, Moves int
}

// Add adds the counts of another run.
func (s *Stats) Add(o Stats) {
	s.Steps += o.Steps
	s.Jobs, s.Done, s.Failed, s.Cancelled = s.Jobs+o.Jobs, s.Done+o.Done, s.Failed+o.Failed, s.Cancelled+o.Cancelled
	s.Claims, s.Won, s.Skipped = s.Claims+o.Claims, s.Won+o.Won, s.Skipped+o.Skipped
	s.Finishes, s.Stale = s.Finishes+o.Finishes, s.Stale+o.Stale
	s.TakenOver, s.Rejoined = s.TakenOver+o.TakenOver, s.Rejoined+o.Rejoined
	s.Executions, s.Overlaps = s.Executions+o.Executions, s.Overlaps+o.Overlaps
	s.Calls, s.Answered, s.Abandoned = s.Calls+o.Calls, s.Answered+o.Answered, s.Abandoned+o.Abandoned
	s.Crashes, s.Stops, s.Restarts = s.Crashes+o.Crashes, s.Stops+o.Stops, s.Restarts+o.Restarts
	s.Kills, s.Suspensions, s.Cuts = s.Kills+o.Kills, s.Suspensions+o.Suspensions, s.Cuts+o.Cuts
	s.Unreachable, s.Unknowns = s.Unreachable+o.Unreachable, s.Unknowns+o.Unknowns
	s.Slow, s.LateStatement = s.Slow+o.Slow, s.LateStatement+o.LateStatement
	s.Notified, s.LostNotifications = s.Notified+o.Notified, s.LostNotifications+o.LostNotifications
	s.WrongStale += o.WrongStale
	s.Deferred += o.Deferred
	s.Shared += o.Shared
	s.LockWaits, s.Ticks, s.Windows = s.LockWaits+o.LockWaits, s.Ticks+o.Ticks, s.Windows+o.Windows
	s.Detached, s.Offered, s.Adopted = s.Detached+o.Detached, s.Offered+o.Offered, s.Adopted+o.Adopted
	s.Resumed, s.HandedOver, s.NotAdopted = s.Resumed+o.Resumed, s.HandedOver+o.HandedOver, s.NotAdopted+o.NotAdopted
	s.HungUp, s.LateSlots = s.HungUp+o.HungUp, s.LateSlots+o.LateSlots
	s.Reoffered += o.Reoffered
	s.Loaded, s.SetAside = s.Loaded+o.Loaded, s.SetAside+o.SetAside
	s.RowsLocked, s.RowsMoved = s.RowsLocked+o.RowsLocked, s.RowsMoved+o.RowsMoved
	s.BackfillScans += o.BackfillScans
	s.Busy += o.Busy
	s.Keyed, s.Admitted, s.Terms = s.Keyed+o.Keyed, s.Admitted+o.Admitted, s.Terms+o.Terms
	s.Fired, s.Children, s.Refused = s.Fired+o.Fired, s.Children+o.Children, s.Refused+o.Refused
	s.EndsCounted += o.EndsCounted
	s.Expired, s.LateAdoptions = s.Expired+o.Expired, s.LateAdoptions+o.LateAdoptions
	s.Partitions, s.Isolations = s.Partitions+o.Partitions, s.Isolations+o.Isolations
	s.SentAway, s.Moves = s.SentAway+o.SentAway, s.Moves+o.Moves
}
