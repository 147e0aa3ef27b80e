package actor

import "math/bits"

// jobState is where a job in hand stands. ARCHITECTURE.md draws the states, and a
// test holds the drawing to the table below.
type jobState uint8

// The states. A job is not in hand before its first transition and after its
// last one.
const (
	notInHand jobState = iota + 1

	// On-demand requests.
	waiting   // in its request queue
	serving   // sent to a worker, which holds a slot for it
	abandoned // the caller was answered or hung up; the worker was told to stop

	// Queued jobs whose row is not known to be ours.
	reserved   // has a slot; its claim is not sent
	unplaced   // lost its slot before its claim was sent
	claiming   // has a slot; its claim is in flight
	slotless   // its claim is in flight; its slot is gone
	preempted  // its claim is in flight; its slot was given to a job with a higher score
	unresolved // the outcome of its claim is unknown; has no slot

	// Queued jobs whose row is ours.
	unassigned       // claimed but unassigned: waits for a slot until the end of the step
	running          // sent to a worker, which holds a slot for it
	revoked          // running, and told to stop without a time limit: the lease cannot be proved
	stopping         // running, and told to stop within Config.CancelGrace
	detached         // running without a session; may be resumed within Config.Resume
	detachedStopping // detached, and to be told to stop when it is resumed
	recording        // its end is on its way to Postgres; has no slot

	jobStates
)

// jobEvent is something that happens to a job in hand.
type jobEvent uint8

// The events. The files named after decisions choose them.
const (
	onEnqueue  jobEvent = iota // a request arrived
	onReserve                  // a row was placed
	onAdopt                    // a running row was adopted
	onStart                    // a request was given a slot
	onRequeue                  // a running request returns to its queue
	onAnswer                   // a request is over
	onClaim                    // the claim is sent
	onSlotLost                 // the slot is gone
	onPreempt                  // the slot was given to a job with a higher score
	onGiveUp                   // the row is not ours and will not be
	onUnknown                  // the claim's outcome is unknown
	onWin                      // the claim won the row
	onUnwanted                 // the row is ours, and the job is not to run
	onAssign                   // a claimed job was given a slot
	onStop                     // the job must stop
	onRevoke                   // the lease cannot be proved
	onDetach                   // its session ended for no fault of the job
	onResume                   // its worker resumes it
	onFinish                   // its attempt ended
	onLeave                    // the row stays running for the next dispatcher
	onRecorded                 // its end is recorded, or was stale

	jobEvents
)

// actions are what Core does at a transition, in this order.
type actions uint16

const (
	freeSlot       actions = 1 << iota // the slot can take another job
	dequeue                            // leaves its request queue
	disarm                             // has no deadline any more
	keepTimeout                        // remembers when its timeout passes
	restoreTimeout                     // the timeout is its deadline again
	assignLater                        // is assigned a slot in this step, or released
	sendJob                            // Send
	sendCancel                         // Cancel
	armGrace                           // its worker has Config.CancelGrace to stop
	armResume                          // its worker has Config.Resume to come back
	release                            // its row becomes pending again, or cancelled
	forget                             // is not in hand any more
)

// transition is a cell of the table. The zero transition is impossible.
type transition struct {
	next jobState
	do   actions
}

// transitions is the state machine of jobs in hand.
var transitions = [jobStates][jobEvents]transition{
	notInHand: {
		onEnqueue: {waiting, 0},
		onReserve: {reserved, 0},
		onAdopt:   {running, 0},
	},
	waiting: {
		onStart:  {serving, dequeue | sendJob},
		onAnswer: {notInHand, dequeue | forget},
	},
	serving: {
		onRequeue: {waiting, freeSlot | disarm},
		onAnswer:  {notInHand, freeSlot | forget},
		onStop:    {abandoned, sendCancel | armGrace},
		onResume:  {serving, 0},
	},
	abandoned: {
		onAnswer: {notInHand, freeSlot | forget},
		onResume: {abandoned, sendCancel},
	},
	reserved: {
		onClaim:    {claiming, 0},
		onSlotLost: {unplaced, 0},
		onPreempt:  {unplaced, 0},
		onGiveUp:   {notInHand, freeSlot | forget},
		onStop:     {reserved, 0},
	},
	unplaced: {
		onGiveUp: {notInHand, forget},
		onStop:   {unplaced, 0},
	},
	claiming: {
		onSlotLost: {slotless, 0},
		onPreempt:  {preempted, 0},
		onGiveUp:   {notInHand, freeSlot | forget},
		onUnknown:  {unresolved, freeSlot},
		onWin:      {running, sendJob},
		onUnwanted: {recording, freeSlot | release},
		onStop:     {claiming, 0},
	},
	slotless: {
		onGiveUp:   {notInHand, forget},
		onUnknown:  {unresolved, 0},
		onWin:      {recording, release},
		onUnwanted: {recording, release},
		onStop:     {slotless, 0},
	},
	preempted: {
		onGiveUp:   {notInHand, forget},
		onUnknown:  {unresolved, 0},
		onWin:      {unassigned, assignLater},
		onUnwanted: {recording, release},
		onStop:     {preempted, 0},
	},
	unresolved: {
		onGiveUp:   {notInHand, forget},
		onUnknown:  {unresolved, 0},
		onWin:      {unassigned, assignLater},
		onUnwanted: {recording, release},
		onStop:     {unresolved, 0},
	},
	unassigned: {
		onAssign:   {running, sendJob},
		onUnwanted: {recording, release},
		onStop:     {unassigned, 0},
	},
	running: {
		onStop:   {stopping, sendCancel | armGrace},
		onRevoke: {revoked, sendCancel},
		onDetach: {detached, keepTimeout | armResume},
		onResume: {running, 0},
		onFinish: {recording, freeSlot | disarm},
		onLeave:  {notInHand, forget},
	},
	revoked: {
		onStop:   {stopping, sendCancel | armGrace},
		onFinish: {recording, freeSlot | disarm},
	},
	stopping: {
		onStop:   {stopping, sendCancel},
		onRevoke: {stopping, sendCancel},
		onDetach: {detachedStopping, armResume},
		onResume: {stopping, sendCancel},
		onFinish: {recording, freeSlot | disarm},
		onLeave:  {notInHand, forget},
	},
	detached: {
		onStop:   {detachedStopping, 0},
		onRevoke: {detachedStopping, 0},
		onResume: {running, restoreTimeout},
		onFinish: {recording, disarm},
		onLeave:  {notInHand, forget},
	},
	detachedStopping: {
		onStop:   {detachedStopping, 0},
		onRevoke: {detachedStopping, 0},
		onResume: {stopping, sendCancel | armGrace},
		onFinish: {recording, disarm},
		onLeave:  {notInHand, forget},
	},
	recording: {
		onStop:     {recording, 0},
		onRecorded: {notInHand, forget},
	},
}

// claimPending reports whether the job's row is not known to be ours.
func (s jobState) claimPending() bool { return s >= reserved && s <= unresolved }

// executing reports whether a worker executes the job, or may.
func (s jobState) executing() bool {
	return s == serving || s == abandoned || s >= running && s <= detachedStopping
}

// holdsSlot reports whether a slot is reserved for the job or executes it.
func (s jobState) holdsSlot() bool {
	return s == reserved || s == claiming || s.executing() && !s.isDetached()
}

// isDetached reports whether the job runs without a session.
func (s jobState) isDetached() bool { return s == detached || s == detachedStopping }

var stateNames = [jobStates]string{
	notInHand: "not in hand", waiting: "waiting", serving: "serving", abandoned: "abandoned",
	reserved: "reserved", unplaced: "unplaced", claiming: "claiming", slotless: "slotless",
	preempted: "preempted", unresolved: "unresolved", unassigned: "unassigned", running: "running",
	revoked: "revoked", stopping: "stopping", detached: "detached", detachedStopping: "detached stopping",
	recording: "recording",
}

// String returns the state's name in ARCHITECTURE.md.
func (s jobState) String() string { return stateNames[s] }

var eventNames = [jobEvents]string{
	onEnqueue: "enqueue", onReserve: "reserve", onAdopt: "adopt", onStart: "start", onRequeue: "requeue",
	onAnswer: "answer", onClaim: "claim", onSlotLost: "slot lost", onPreempt: "preempt", onGiveUp: "give up",
	onUnknown: "unknown", onWin: "win", onUnwanted: "unwanted", onAssign: "assign", onStop: "stop",
	onRevoke: "revoke", onDetach: "detach", onResume: "resume", onFinish: "finish", onLeave: "leave",
	onRecorded: "recorded",
}

// String returns the event's name in ARCHITECTURE.md.
func (e jobEvent) String() string { return eventNames[e] }

var actionNames = [...]string{
	"free slot", "dequeue", "disarm", "keep timeout", "restore timeout", "assign later", "send job",
	"send cancel", "arm grace", "arm resume", "release row", "forget",
}

// names returns the names of actions in their order.
func (a actions) names() (list []string) {
	for rest := a; rest != 0; rest &= rest - 1 {
		list = append(list, actionNames[bits.TrailingZeros16(uint16(rest))])
	}
	return list
}
