package flow

import (
	"cmp"
	"slices"
	"time"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/heap"
)

// Full are the limits of a step without a reason for lower ones.
var Full = Limits{Items: 1000, Bytes: 4 << 20, Time: 25 * time.Millisecond}

const (
	smallest   = 10                    // how often failures halve the limits at most: then they are one round of one row
	slowest    = 3                     // how often long rounds do, because a part of the time of a round does not depend on its limits
	longRound  = 50 * time.Millisecond // halves the limits of its target
	shortRound = 25 * time.Millisecond // doubles them
	freshSteps = 3                     // of a queue before one of a queue behind it
	firstPause = 2 * time.Millisecond  // of a target that must wait for another transaction; doubled each time
	mostPause  = time.Second
	mostTurns  = 100_000 // heartbeats find other targets
)

// Turns says which target gets the next step. It is the only memory of the service: a heartbeat fills it again.
//
// There are four queues. Fresh targets are those for which a job has ended here and that have had no step since. The second queue has
// the other targets without a step since they were added, the third one those that had more to do after a step, and the last one those
// that have paused, the one with the shortest pause first. After three steps of a queue, one of the queues behind it gets a step. So
// neither many large flows nor many that wait for another transaction delay the few steps of a small batch: it waits for one step of
// each target before it in its queue, and for a third as many behind it.
//
// In a queue, owners take turns. If a producer inserts 1,000 flows at once, and another one inserts a flow after it, the flow of the second
// one gets the second step. A search knows the owners of what it finds. All others, for which a job has ended here, take turns as if they
// had one owner.
type Turns struct {
	queues    [4]queue
	paused    []*turn
	turns     map[dispatcherd.JobID]*turn
	scale     int // of the last target that had more to do: the next ones begin with it, because they are often of the same kind
	succeeded int // steps
	waited    int // how often a target began to wait
}

// queue has the targets that wait for a step.
type queue struct {
	targets heap.Heap[*turn, first]
	since   int            // steps since one of a queue behind it
	round   int            // of the target that had the last step
	rounds  map[string]int // of the last target of each owner
}

// turn is a target that waits for a step.
type turn struct {
	id       dispatcherd.JobID
	owner    string
	scale    int // how often its limits are halved
	pause    time.Duration
	until    time.Time // end of the pause
	failures int       // with the lowest limits, that count
	seen     int       // Turns.succeeded at the last failure
	again    bool      // it was added while it had a turn

	round, order int // in its queue: each owner has one target in a round, and the order within a round
	place        int32
}

// first orders a queue by pauses and rounds. Only the last queue has targets with pauses.
type first struct{}

// Before implements heap.Order.
func (first) Before(a, b *turn) bool {
	return cmp.Or(cmp.Compare(a.pause, b.pause), cmp.Compare(a.round, b.round), cmp.Compare(a.order, b.order)) < 0
}

// Place implements heap.Order.
func (first) Place(t *turn) *int32 { return &t.place }

// Add adds a target, unless it waits already. The owner is that of its batch or flow; "" = unknown.
func (t *Turns) Add(id dispatcherd.JobID, owner string, fresh bool) {
	if t.turns == nil {
		t.turns = map[dispatcherd.JobID]*turn{}
	}
	if waits := t.turns[id]; waits != nil {
		waits.again, waits.owner = true, cmp.Or(owner, waits.owner)
	} else if len(t.turns) < mostTurns {
		t.turns[id] = &turn{id: id, owner: owner}
		t.append(1-number(fresh), t.turns[id])
	}
}

func (t *Turns) append(n int, turn *turn) {
	q := &t.queues[n]
	if len(q.targets) == 0 {
		q.rounds = map[string]int{}
	}
	t.waited++
	turn.round, turn.order = max(q.round, q.rounds[turn.owner])+1, t.waited
	q.rounds[turn.owner] = turn.round
	q.targets.Put(turn)
}

// Has reports whether a target waits for a step.
func (t *Turns) Has(id dispatcherd.JobID) bool { return t.turns[id] != nil }

// Next returns the next target, with the limits of its step. If it is 0, wait is how long none has a turn; 0 = until one is added.
func (t *Turns) Next(now time.Time) (id dispatcherd.JobID, l Limits, wait time.Duration) {
	t.paused = slices.DeleteFunc(t.paused, func(turn *turn) bool {
		left := turn.until.Sub(now)
		if left <= 0 {
			t.append(3, turn)
		} else if wait == 0 || left < wait {
			wait = left
		}
		return left <= 0
	})
	n := -1
	for i := len(t.queues) - 1; i >= 0; i-- {
		if len(t.queues[i].targets) > 0 && (n < 0 || t.queues[i].since < freshSteps) {
			n = i
		}
	}
	if n < 0 {
		return 0, l, wait
	}
	for i := range n {
		t.queues[i].since = 0
	}
	q := &t.queues[n]
	turn, _ := q.targets.First()
	q.targets.Remove(turn)
	q.since, q.round = q.since+1, turn.round
	turn.again, turn.scale = false, max(turn.scale, t.scale)
	return turn.id, Limits{max(Full.Items>>turn.scale, 1), max(Full.Bytes>>turn.scale, 1), Full.Time >> turn.scale}, 0
}

// Done takes the result of a step: whether another one has something to do, whether that must wait for another transaction, and how long
// one of its rounds took. The limits bound a round, and a step has as many as there is time for.
func (t *Turns) Done(id dispatcherd.JobID, left, busy bool, round time.Duration, now time.Time) {
	turn := t.turns[id]
	turn.failures = 0
	if !busy {
		t.succeeded++
	}
	switch {
	case round > longRound:
		turn.scale = max(turn.scale, min(turn.scale+1, slowest))
	case round < shortRound:
		turn.scale = max(turn.scale-1, 0)
	}
	if left && !busy {
		t.scale = min(turn.scale, slowest)
	}
	switch {
	case busy:
		t.rest(turn, now)
	case left || turn.again:
		turn.pause = 0
		t.append(1+number(left), turn)
	default:
		delete(t.turns, id)
	}
}

// Failed takes the failure of a step. It reports whether the target must be set aside, because even the smallest step fails. Unless the
// target is certainly the cause, a failure counts only if steps of others have succeeded since the last one: otherwise no step may be
// possible, for example because a disk does not answer.
func (t *Turns) Failed(id dispatcherd.JobID, certain bool, now time.Time) (aside bool) {
	turn := t.turns[id]
	if turn.scale == smallest && (certain || turn.seen < t.succeeded) {
		turn.failures++
	}
	turn.seen = t.succeeded
	turn.scale = min(turn.scale+2, smallest)
	if turn.failures == 3 {
		delete(t.turns, id)
		return true
	}
	t.rest(turn, now)
	return false
}

// rest pauses a target. It delays no other one.
func (t *Turns) rest(turn *turn, now time.Time) {
	turn.pause = min(max(2*turn.pause, firstPause), mostPause)
	turn.until = now.Add(turn.pause)
	t.paused = append(t.paused, turn)
}
