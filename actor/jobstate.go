package actor

// jobState is the state of a job in hand.
type jobState uint8

// The states. A job is not in hand before its first transition and after its last
// transition.
const (
	stateNotInHand jobState = iota + 1

	// States of on-demand requests.

	stateWaiting   // in its request queue
	stateServing   // sent to a worker; holds a slot
	stateParted    // serving without a session; may be resumed, see armResume
	stateAbandoned // the caller was answered or disconnected; the worker was told to stop

	// States of queued jobs whose row is not known to belong to this dispatcher.

	stateReserved   // has a slot; its claim is not sent
	stateClaiming   // has a slot; its claim is in flight
	stateSlotless   // its claim is in flight; its slot is gone
	statePreempted  // its claim is in flight; its slot was given to a job with a higher score
	stateUnresolved // the outcome of its claim is unknown; has no slot

	// States of queued jobs whose row belongs to this dispatcher.

	stateUnassigned       // claimed but unassigned: waits for a slot until the end of the step
	stateRunning          // sent to a worker; holds a slot
	stateRevoked          // running, and told to stop without a time limit because the lease may have ended
	stateStopping         // running, and told to stop within Config.CancelGrace
	stateDetached         // running without a session; may be resumed within Config.Resume
	stateDetachedStopping // detached, and will be told to stop when it is resumed
	stateRecording        // its end is being recorded; has no slot

	stateCount // number of states, including 0
)

// jobEvent is something that happens to a job in hand.
type jobEvent uint8

// The events. The files that are named after decisions choose them.
const (
	onEnqueue  jobEvent = iota // a request arrived
	onReserve                  // a row was placed
	onAdopt                    // a running row was adopted
	onStart                    // a request was given a slot
	onRequeue                  // a running request returns to its queue
	onAnswer                   // a request has ended
	onClaim                    // the claim is sent
	onSlotLost                 // the slot is gone
	onPreempt                  // the slot was given to a job with a higher score
	onGiveUp                   // the row does not become this dispatcher's
	onUnknown                  // the claim's outcome is unknown
	onWin                      // the claim won the row
	onUnwanted                 // the row belongs to this dispatcher, but the job must not run
	onAssign                   // a claimed job was given a slot
	onStop                     // the job must stop
	onRevoke                   // the lease may have ended
	onDetach                   // the session ended for a reason outside the job
	onResume                   // the worker resumes the job
	onFinish                   // the attempt ended
	onLeave                    // the row stays running for the next dispatcher
	onRecorded                 // the end is recorded, or the attempt was stale

	eventCount // number of events
)

// actions are the things that the Core does at a transition, in this order.
type actions uint16

// The actions.
const (
	doFreeSlot    actions = 1 << iota // the slot can take another job
	doDequeue                         // the request leaves its queue
	doDisarm                          // the job has no deadline any more
	doArmTimeout                      // its timeout is its deadline again
	doAssignLater                     // in this step the job is assigned a slot or is released
	doSendJob                         // effect Send
	doSendCancel                      // effect Cancel
	doArmGrace                        // the worker has Config.CancelGrace to stop
	doArmResume                       // the worker has the time of armResume to reconnect
	doReleaseRow                      // the row becomes pending again, or cancelled
	doForget                          // the job is not in hand any more
)

// transition is a cell of the table. The zero transition is impossible.
type transition struct {
	next jobState
	do   actions
}

// transitions is the state machine of jobs in hand.
var transitions = [stateCount][eventCount]transition{
	stateNotInHand: {
		onEnqueue: {stateWaiting, 0},
		onReserve: {stateReserved, 0},
		onAdopt:   {stateRunning, 0},
	},
	stateWaiting: {
		onStart:  {stateServing, doDequeue | doSendJob},
		onAnswer: {stateNotInHand, doDequeue | doForget},
	},
	stateServing: {
		onRequeue: {stateWaiting, doFreeSlot | doDisarm},
		onAnswer:  {stateNotInHand, doFreeSlot | doForget},
		onStop:    {stateAbandoned, doSendCancel | doArmGrace},
		onDetach:  {stateParted, doArmResume},
		onResume:  {stateServing, 0},
	},
	stateParted: {
		onRequeue: {stateWaiting, doDisarm},
		onAnswer:  {stateNotInHand, doForget},
		onResume:  {stateServing, doArmTimeout},
	},
	stateAbandoned: {
		onAnswer: {stateNotInHand, doFreeSlot | doForget},
		onResume: {stateAbandoned, doSendCancel},
	},
	stateReserved: {
		onClaim:  {stateClaiming, 0},
		onGiveUp: {stateNotInHand, doFreeSlot | doForget},
		onStop:   {stateReserved, 0},
	},
	stateClaiming: {
		onSlotLost: {stateSlotless, 0},
		onPreempt:  {statePreempted, 0},
		onGiveUp:   {stateNotInHand, doFreeSlot | doForget},
		onUnknown:  {stateUnresolved, doFreeSlot},
		onWin:      {stateRunning, doSendJob},
		onUnwanted: {stateRecording, doFreeSlot | doReleaseRow},
		onStop:     {stateClaiming, 0},
	},
	stateSlotless: {
		onGiveUp:   {stateNotInHand, doForget},
		onUnknown:  {stateUnresolved, 0},
		onWin:      {stateRecording, doReleaseRow},
		onUnwanted: {stateRecording, doReleaseRow},
		onStop:     {stateSlotless, 0},
	},
	statePreempted: {
		onGiveUp:   {stateNotInHand, doForget},
		onUnknown:  {stateUnresolved, 0},
		onWin:      {stateUnassigned, doAssignLater},
		onUnwanted: {stateRecording, doReleaseRow},
		onStop:     {statePreempted, 0},
	},
	stateUnresolved: {
		onGiveUp:   {stateNotInHand, doForget},
		onUnknown:  {stateUnresolved, 0},
		onWin:      {stateUnassigned, doAssignLater},
		onUnwanted: {stateRecording, doReleaseRow},
		onStop:     {stateUnresolved, 0},
	},
	stateUnassigned: {
		onAssign:   {stateRunning, doSendJob},
		onUnwanted: {stateRecording, doReleaseRow},
		onStop:     {stateUnassigned, 0},
	},
	stateRunning: {
		onStop:   {stateStopping, doSendCancel | doArmGrace},
		onRevoke: {stateRevoked, doSendCancel},
		onDetach: {stateDetached, doArmResume},
		onResume: {stateRunning, 0},
		onFinish: {stateRecording, doFreeSlot | doDisarm},
		onLeave:  {stateNotInHand, doForget},
	},
	stateRevoked: {
		onStop:   {stateStopping, doSendCancel | doArmGrace},
		onFinish: {stateRecording, doFreeSlot | doDisarm},
	},
	stateStopping: {
		onStop:   {stateStopping, doSendCancel},
		onRevoke: {stateStopping, doSendCancel},
		onDetach: {stateDetachedStopping, doArmResume},
		onResume: {stateStopping, doSendCancel},
		onFinish: {stateRecording, doFreeSlot | doDisarm},
		onLeave:  {stateNotInHand, doForget},
	},
	stateDetached: {
		onStop:   {stateDetachedStopping, 0},
		onRevoke: {stateDetachedStopping, 0},
		onResume: {stateRunning, doArmTimeout},
		onFinish: {stateRecording, doDisarm},
		onLeave:  {stateNotInHand, doForget},
	},
	stateDetachedStopping: {
		onStop:   {stateDetachedStopping, 0},
		onRevoke: {stateDetachedStopping, 0},
		onResume: {stateStopping, doSendCancel | doArmGrace},
		onFinish: {stateRecording, doDisarm},
		onLeave:  {stateNotInHand, doForget},
	},
	stateRecording: {
		onStop:     {stateRecording, 0},
		onRecorded: {stateNotInHand, doForget},
	},
}

// claimPending reports whether the claim of the job is undecided. In this case the
// Core does not know whether the row belongs to this dispatcher.
func (s jobState) claimPending() bool { return s >= stateReserved && s <= stateUnresolved }

// executing reports whether a worker executes the job or may execute it.
func (s jobState) executing() bool {
	return s >= stateServing && s <= stateAbandoned || s >= stateRunning && s <= stateDetachedStopping
}

// reservesSlot reports whether a slot is reserved for the job.
func (s jobState) reservesSlot() bool { return s == stateReserved || s == stateClaiming }

// isDetached reports whether the job runs without a session.
func (s jobState) isDetached() bool {
	return s == stateDetached || s == stateDetachedStopping || s == stateParted
}

var stateNames = [stateCount]string{
	stateNotInHand: "not in hand", stateWaiting: "waiting", stateServing: "serving", stateParted: "parted", stateAbandoned: "abandoned",
	stateReserved: "reserved", stateClaiming: "claiming", stateSlotless: "slotless",
	statePreempted: "preempted", stateUnresolved: "unresolved", stateUnassigned: "unassigned", stateRunning: "running",
	stateRevoked: "revoked", stateStopping: "stopping", stateDetached: "detached", stateDetachedStopping: "detached stopping",
	stateRecording: "recording",
}

// String returns the name of the state.
func (s jobState) String() string { return stateNames[s] }

var eventNames = [eventCount]string{
	onEnqueue: "enqueue", onReserve: "reserve", onAdopt: "adopt", onStart: "start", onRequeue: "requeue",
	onAnswer: "answer", onClaim: "claim", onSlotLost: "slot lost", onPreempt: "preempt", onGiveUp: "give up",
	onUnknown: "unknown", onWin: "win", onUnwanted: "unwanted", onAssign: "assign", onStop: "stop",
	onRevoke: "revoke", onDetach: "detach", onResume: "resume", onFinish: "finish", onLeave: "leave",
	onRecorded: "recorded",
}

// String returns the name of the event.
func (e jobEvent) String() string { return eventNames[e] }
