// Package jobstate is the state machine of jobs in hand, as a table.
package jobstate

// State is the state of a job in hand. ARCHITECTURE.md shows the main paths.
type State uint8

// The states. A job is not in hand before its first transition and after its last
// transition.
const (
	NotInHand State = iota + 1

	// States of on-demand requests.

	Waiting   // in its request queue
	Serving   // sent to a worker; holds a slot
	Abandoned // the caller was answered or disconnected; the worker was told to stop

	// States of queued jobs whose row is not known to belong to this dispatcher.

	Reserved   // has a slot; its claim is not sent
	Unplaced   // lost its slot before its claim was sent
	Claiming   // has a slot; its claim is in flight
	Slotless   // its claim is in flight; its slot is gone
	Preempted  // its claim is in flight; its slot was given to a job with a higher score
	Unresolved // the outcome of its claim is unknown; has no slot

	// States of queued jobs whose row belongs to this dispatcher.

	Unassigned       // claimed but unassigned: waits for a slot until the end of the step
	Running          // sent to a worker; holds a slot
	Revoked          // running, and told to stop without a time limit because the lease may have ended
	Stopping         // running, and told to stop within Config.CancelGrace
	Detached         // running without a session; may be resumed within Config.Resume
	DetachedStopping // detached, and will be told to stop when it is resumed
	Recording        // its end is being recorded; has no slot

	States // number of states, including 0
)

// Event is something that happens to a job in hand.
type Event uint8

// The events. The files of package actor that are named after decisions choose the
// events.
const (
	OnEnqueue  Event = iota // a request arrived
	OnReserve               // a row was placed
	OnAdopt                 // a running row was adopted
	OnStart                 // a request was given a slot
	OnRequeue               // a running request returns to its queue
	OnAnswer                // a request has ended
	OnClaim                 // the claim is sent
	OnSlotLost              // the slot is gone
	OnPreempt               // the slot was given to a job with a higher score
	OnGiveUp                // the row does not become this dispatcher's
	OnUnknown               // the claim's outcome is unknown
	OnWin                   // the claim won the row
	OnUnwanted              // the row belongs to this dispatcher, but the job must not run
	OnAssign                // a claimed job was given a slot
	OnStop                  // the job must stop
	OnRevoke                // the lease may have ended
	OnDetach                // the session ended for a reason outside the job
	OnResume                // the worker resumes the job
	OnFinish                // the attempt ended
	OnLeave                 // the row stays running for the next dispatcher
	OnRecorded              // the end is recorded, or the attempt was stale

	Events // number of events
)

// Actions are the things that the Core does at a transition, in this order.
type Actions uint16

// The actions.
const (
	FreeSlot       Actions = 1 << iota // the slot can take another job
	Dequeue                            // the request leaves its queue
	Disarm                             // the job has no deadline any more
	KeepTimeout                        // the job stores when its timeout ends
	RestoreTimeout                     // the stored timeout becomes its deadline again
	AssignLater                        // in this step the job is assigned a slot or is released
	SendJob                            // effect Send
	SendCancel                         // effect Cancel
	ArmGrace                           // the worker has Config.CancelGrace to stop
	ArmResume                          // the worker has Config.Resume to reconnect
	ReleaseRow                         // the row becomes pending again, or cancelled
	Forget                             // the job is not in hand any more
)

// transition is a cell of the table. The zero transition is impossible.
type transition struct {
	next State
	do   Actions
}

// transitions is the state machine of jobs in hand.
var transitions = [States][Events]transition{
	NotInHand: {
		OnEnqueue: {Waiting, 0},
		OnReserve: {Reserved, 0},
		OnAdopt:   {Running, 0},
	},
	Waiting: {
		OnStart:  {Serving, Dequeue | SendJob},
		OnAnswer: {NotInHand, Dequeue | Forget},
	},
	Serving: {
		OnRequeue: {Waiting, FreeSlot | Disarm},
		OnAnswer:  {NotInHand, FreeSlot | Forget},
		OnStop:    {Abandoned, SendCancel | ArmGrace},
		OnResume:  {Serving, 0},
	},
	Abandoned: {
		OnAnswer: {NotInHand, FreeSlot | Forget},
		OnResume: {Abandoned, SendCancel},
	},
	Reserved: {
		OnClaim:    {Claiming, 0},
		OnSlotLost: {Unplaced, 0},
		OnPreempt:  {Unplaced, 0},
		OnGiveUp:   {NotInHand, FreeSlot | Forget},
		OnStop:     {Reserved, 0},
	},
	Unplaced: {
		OnGiveUp: {NotInHand, Forget},
		OnStop:   {Unplaced, 0},
	},
	Claiming: {
		OnSlotLost: {Slotless, 0},
		OnPreempt:  {Preempted, 0},
		OnGiveUp:   {NotInHand, FreeSlot | Forget},
		OnUnknown:  {Unresolved, FreeSlot},
		OnWin:      {Running, SendJob},
		OnUnwanted: {Recording, FreeSlot | ReleaseRow},
		OnStop:     {Claiming, 0},
	},
	Slotless: {
		OnGiveUp:   {NotInHand, Forget},
		OnUnknown:  {Unresolved, 0},
		OnWin:      {Recording, ReleaseRow},
		OnUnwanted: {Recording, ReleaseRow},
		OnStop:     {Slotless, 0},
	},
	Preempted: {
		OnGiveUp:   {NotInHand, Forget},
		OnUnknown:  {Unresolved, 0},
		OnWin:      {Unassigned, AssignLater},
		OnUnwanted: {Recording, ReleaseRow},
		OnStop:     {Preempted, 0},
	},
	Unresolved: {
		OnGiveUp:   {NotInHand, Forget},
		OnUnknown:  {Unresolved, 0},
		OnWin:      {Unassigned, AssignLater},
		OnUnwanted: {Recording, ReleaseRow},
		OnStop:     {Unresolved, 0},
	},
	Unassigned: {
		OnAssign:   {Running, SendJob},
		OnUnwanted: {Recording, ReleaseRow},
		OnStop:     {Unassigned, 0},
	},
	Running: {
		OnStop:   {Stopping, SendCancel | ArmGrace},
		OnRevoke: {Revoked, SendCancel},
		OnDetach: {Detached, KeepTimeout | ArmResume},
		OnResume: {Running, 0},
		OnFinish: {Recording, FreeSlot | Disarm},
		OnLeave:  {NotInHand, Forget},
	},
	Revoked: {
		OnStop:   {Stopping, SendCancel | ArmGrace},
		OnFinish: {Recording, FreeSlot | Disarm},
	},
	Stopping: {
		OnStop:   {Stopping, SendCancel},
		OnRevoke: {Stopping, SendCancel},
		OnDetach: {DetachedStopping, ArmResume},
		OnResume: {Stopping, SendCancel},
		OnFinish: {Recording, FreeSlot | Disarm},
		OnLeave:  {NotInHand, Forget},
	},
	Detached: {
		OnStop:   {DetachedStopping, 0},
		OnRevoke: {DetachedStopping, 0},
		OnResume: {Running, RestoreTimeout},
		OnFinish: {Recording, Disarm},
		OnLeave:  {NotInHand, Forget},
	},
	DetachedStopping: {
		OnStop:   {DetachedStopping, 0},
		OnRevoke: {DetachedStopping, 0},
		OnResume: {Stopping, SendCancel | ArmGrace},
		OnFinish: {Recording, Disarm},
		OnLeave:  {NotInHand, Forget},
	},
	Recording: {
		OnStop:     {Recording, 0},
		OnRecorded: {NotInHand, Forget},
	},
}

// Next returns the next state and the actions. The returned state is 0 if the event
// is impossible in s.
func Next(s State, ev Event) (State, Actions) {
	t := &transitions[s][ev]
	return t.next, t.do
}

// ClaimPending reports whether the claim of the job is undecided. In this case the
// Core does not know whether the row belongs to this dispatcher.
func (s State) ClaimPending() bool { return s >= Reserved && s <= Unresolved }

// Executing reports whether a worker executes the job or may execute it.
func (s State) Executing() bool {
	return s == Serving || s == Abandoned || s >= Running && s <= DetachedStopping
}

// ReservesSlot reports whether a slot is reserved for the job.
func (s State) ReservesSlot() bool { return s == Reserved || s == Claiming }

// IsDetached reports whether the job runs without a session.
func (s State) IsDetached() bool { return s == Detached || s == DetachedStopping }

var stateNames = [States]string{
	NotInHand: "not in hand", Waiting: "waiting", Serving: "serving", Abandoned: "abandoned",
	Reserved: "reserved", Unplaced: "unplaced", Claiming: "claiming", Slotless: "slotless",
	Preempted: "preempted", Unresolved: "unresolved", Unassigned: "unassigned", Running: "running",
	Revoked: "revoked", Stopping: "stopping", Detached: "detached", DetachedStopping: "detached stopping",
	Recording: "recording",
}

// String returns the name of the state.
func (s State) String() string { return stateNames[s] }

var eventNames = [Events]string{
	OnEnqueue: "enqueue", OnReserve: "reserve", OnAdopt: "adopt", OnStart: "start", OnRequeue: "requeue",
	OnAnswer: "answer", OnClaim: "claim", OnSlotLost: "slot lost", OnPreempt: "preempt", OnGiveUp: "give up",
	OnUnknown: "unknown", OnWin: "win", OnUnwanted: "unwanted", OnAssign: "assign", OnStop: "stop",
	OnRevoke: "revoke", OnDetach: "detach", OnResume: "resume", OnFinish: "finish", OnLeave: "leave",
	OnRecorded: "recorded",
}

// String returns the name of the event.
func (e Event) String() string { return eventNames[e] }
