package sim

import (
	"fmt"
	"time"
)

// Faults is a set of things that may go wrong.
type Faults uint32

// The faults.
const (
	Crash       Faults = 1 << iota // kill -9 of dispatchers; statements under way may or may not commit
	Stop                           // SIGSTOP and SIGCONT of dispatchers
	Restart                        // SIGTERM of dispatchers: drain, leave, start again
	Clocks                         // hosts' clocks run fast or slow and jump; the database's jumps
	Unreachable                    // Postgres restarts, or nothing reaches it for a while
	Unknown                        // statements, or their answers, get lost, or arrive long after they were given up
	Slow                           // statements take a hundred times as long
	Notify                         // notifications are lost, late or doubled; the listener's connection breaks
	Kill                           // kill -9 of workers
	Suspend                        // SIGSTOP and SIGCONT of workers
	Cut                            // connections between workers and dispatchers break
	Shuffle                        // workers take slots off line, bring others, and drain
	Late                           // inserts commit long after they began; run_at lies in the past
	Resume                         // connections and dispatchers break under workers that keep their executions and present them
	HandOver                       // SIGTERM of dispatchers that leave what runs on to the next
	Nothing     Faults = 0
	All         Faults = 1<<(iota-1) - 1
)

// carried are the faults about work that outlives its connection. They have
// dice of their own, so that a seed without them is the world it always was.
const detachFaults = Resume | HandOver

// Break takes one safeguard out, to show that the checks notice: a negative
// control.
type Break uint8

// The safeguards that can be taken out.
const (
	Intact             Break = iota
	WithoutFence             // a finish compares neither attempt nor dispatcher
	WithoutStatus            // a claim does not ask whether the row is pending
	WithoutPoll              // only notifications make dispatchers look for rows
	WithoutLease             // a claim does not ask whether its dispatcher was declared lost
	WithoutReturn            // the Core is not told that a row it gave back is pending again
	WithoutEpoch             // an unknown claim is resolved without shutting out a late copy of it
	WithoutTakeover          // nobody releases the jobs of lost dispatchers
	WithoutRelease           // what a dead slot ran is not given back
	WithoutEnd               // the Core is not told that a session has ended: its slots leak
	WithoutFingerprint       // an adoption does not ask to whom the job was handed
	WithoutAttempt           // an adoption does not compare the attempt
	WithoutGeneration        // an adoption does not ask whether the worker came later to somebody else
	WithoutMembership        // an adoption does not ask whether its dispatcher was declared lost
	WithoutHold              // a hand-over gives back what it hands over
	WithoutGrace             // a dispatcher that is told to stop does not wait for what runs
)

var breakNames = [...]string{"intact", "without fence", "without status", "without poll", "without lease",
	"without return", "without epoch", "without takeover", "without release", "without end",
	"without mark", "without attempt", "without order", "without standing", "without hold", "without grace"}

// String returns the safeguard's name.
func (b Break) String() string { return breakNames[b] }

// Options choose a world. Everything that they leave open the seed decides.
type Options struct {
	Seed        uint64
	Steps       int    // events until everything is healed and brought to an end; 0 = DefaultSteps
	Dispatchers int    // 1..4; 0 = the seed decides
	Faults      Faults // what may happen; the seed picks some of it unless Every is set
	Every       bool   // all of Faults happen
	Break       Break
	NoPoll      bool // dispatchers do not look for rows unless they are told of some
	// LongLooks makes full looks take as long as under a snapshot that was held
	// for minutes.
	SlowScans bool
	// CheckEvery is the number of a Core's steps between two full checks of its
	// state; 0 = DefaultCheckEvery.
	CheckEvery int
}

// Defaults of Options.
const (
	DefaultSteps      = 60_000
	DefaultCheckEvery = 64
)

func (o Options) withDefaults() Options {
	if o.Steps == 0 {
		o.Steps = DefaultSteps
	}
	if o.CheckEvery == 0 {
		o.CheckEvery = DefaultCheckEvery
	}
	o.NoPoll = o.NoPoll || o.Break == WithoutPoll
	if o.Dispatchers < 0 || o.Dispatchers > maxHosts {
		panic(fmt.Sprintf("sim: %d dispatchers, must be 0 to %d", o.Dispatchers, maxHosts))
	}
	return o
}

const maxHosts = 4

// Violation is a broken promise.
type Violation struct {
	Event int           // how many events had happened
	At    time.Duration // since the world began
	What  string
}

// String says what was broken and when.
func (v *Violation) String() string {
	return fmt.Sprintf("after %d events, at %v: %s", v.Event, v.At, v.What)
}

// Result is what became of a world.
type Result struct {
	Events    int           // Steps of Cores, messages, statements and faults
	Elapsed   time.Duration // simulated time
	Hash      uint64        // of every effect of every Core, in order
	Stats     Stats
	Violation *Violation // the first one, or nil
}

// Stats count what happened in a world, so that a test can see that it was not
// an idle one.
type Stats struct {
	Steps                                      int // of Cores
	Jobs, Done, Failed, Cancelled              int // rows, by how they ended
	Claims, Won, Skipped                       int // claim statements; rows they took and could not take
	Finishes, Stale                            int // items of finishes; those that changed nothing
	TakenOver, Rejoined                        int // rows of lost dispatchers released; leases found gone
	Executions, Overlaps                       int // started; while an older attempt was still being executed
	Calls, Answered, Abandoned                 int
	Crashes, Stops, Restarts                   int // of dispatchers
	Kills, Suspensions, Cuts                   int // of workers and connections
	Unreachable, Unknowns, Slow, LateStatement int
	Notified, LostNotifications                int
	WrongStale                                 int // ends that were recorded and yet called stale
	LockWaits, Ticks                           int // statements that waited for a lock; alarms after which a Core had nothing to do
	Windows                                    int // comparisons of a placement with the jobs it passed
	Detached, Offered                          int // executions whose connection was lost; tries to bring them along
	Adopted, Resumed                           int // rows taken over by the statement; executions that go on, those included that only changed their connection
	HandedOver, NotAdopted                     int // rows left to the next dispatcher; of these, those nobody took in time
	BackfillScans                              int // answers to looks on a connection of their own
	HungUp, LateSlots                          int // sessions ended because a cancel was ignored; slots announced on such a session
	Reoffered                                  int // ends that were reported and presented again
	Busy                                       int // rows that an adoption found locked or changed meanwhile
	Expired, LateAdoptions                     int // executions given up by their workers after the time to resume; taken by a late adoption from a dispatcher to which the worker had come back
}

// Add adds up the stats of several worlds.
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
	s.LockWaits, s.Ticks, s.Windows = s.LockWaits+o.LockWaits, s.Ticks+o.Ticks, s.Windows+o.Windows
	s.Detached, s.Offered, s.Adopted = s.Detached+o.Detached, s.Offered+o.Offered, s.Adopted+o.Adopted
	s.Resumed, s.HandedOver, s.NotAdopted = s.Resumed+o.Resumed, s.HandedOver+o.HandedOver, s.NotAdopted+o.NotAdopted
	s.HungUp, s.LateSlots = s.HungUp+o.HungUp, s.LateSlots+o.LateSlots
	s.Reoffered += o.Reoffered
	s.BackfillScans += o.BackfillScans
	s.Busy += o.Busy
	s.Expired, s.LateAdoptions = s.Expired+o.Expired, s.LateAdoptions+o.LateAdoptions
}
