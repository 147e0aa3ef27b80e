package daemon

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/dispatcherd/dispatcherd/claim"
	"github.com/dispatcherd/dispatcherd/internal/contract"
)

// loadRows is how many rows of one type are read before the next type has its turn.
const loadRows = 64

// loadPause is the time before payloads are read again that Postgres did not return.
const loadPause = 100 * time.Millisecond

// loads reads the payloads that claims did not return. The types take turns, and each
// type has at most one statement in flight. So many or slow payloads of one type delay
// the payloads of another type by one statement. The queue is bounded by the number of
// slots, because each row in it has a slot or has lost its slot to a request.
type loads struct {
	read func(context.Context, contract.LoadRequest) contract.LoadResult
	done func(contract.LoadResult)

	mu     sync.Mutex
	ready  sync.Cond // of mu: a type has become ready, or the queue is closed
	queues map[string][]contract.Won
	turns  []string // the types that are ready: their queue is not empty, and none of their rows is being read
	closed bool
}

func newLoads(read func(context.Context, contract.LoadRequest) contract.LoadResult, done func(contract.LoadResult)) *loads {
	l := &loads{read: read, done: done, queues: map[string][]contract.Won{}}
	l.ready.L = &l.mu
	return l
}

// start starts the goroutines, which run until close.
func (l *loads) start(ctx context.Context, running *sync.WaitGroup) {
	for range claim.Loads {
		running.Go(func() { l.run(ctx) })
	}
}

// add adds rows to the queues of their types.
func (l *loads) add(rows []contract.Won) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range rows {
		typ := rows[i].Type
		queue, known := l.queues[typ]
		if !known {
			l.turns = append(l.turns, typ)
		}
		l.queues[typ] = append(queue, rows[i])
	}
	l.ready.Broadcast()
}

// close ends the goroutines. Rows that are not read stay claimed until the dispatcher
// leaves.
func (l *loads) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	l.ready.Broadcast()
}

func (l *loads) run(ctx context.Context) {
	for {
		typ, rows := l.next()
		if rows == nil {
			return
		}
		result := l.read(ctx, contract.LoadRequest{Rows: rows})
		if result.Verdict != contract.OK {
			l.putBack(typ, rows)
			pause(ctx, loadPause)
			continue
		}
		rest := result.Rest
		result.Rest = nil
		l.done(result)
		l.putBack(typ, rest)
	}
}

// next waits for a type that is ready, and takes its first rows. It returns nil after
// close.
func (l *loads) next() (typ string, rows []contract.Won) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.turns) == 0 && !l.closed {
		l.ready.Wait()
	}
	if l.closed {
		return "", nil
	}
	typ = l.turns[0]
	l.turns = slices.Delete(l.turns, 0, 1)
	queue := l.queues[typ]
	n := min(len(queue), loadRows)
	rows, l.queues[typ] = slices.Clone(queue[:n]), queue[n:]
	return typ, rows
}

// putBack ends the turn of a type. The rows that were not read come first in its next
// turn.
func (l *loads) putBack(typ string, rest []contract.Won) {
	l.mu.Lock()
	defer l.mu.Unlock()
	queue := slices.Concat(rest, l.queues[typ])
	if len(queue) == 0 {
		delete(l.queues, typ)
		return
	}
	l.queues[typ] = queue
	l.turns = append(l.turns, typ)
	l.ready.Signal()
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
