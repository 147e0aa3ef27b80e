package daemon

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/dispatcherd/dispatcherd/claim"
	"github.com/dispatcherd/dispatcherd/internal/background"
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
	read    func(context.Context, contract.LoadRequest) contract.LoadResult
	done    func(contract.LoadResult)
	running *sync.WaitGroup
	flight  chan struct{} // an element for each statement in flight

	mu     sync.Mutex
	queues map[string][]contract.Won // by type; each type in it has a goroutine
}

func newLoads(
	running *sync.WaitGroup,
	read func(context.Context, contract.LoadRequest) contract.LoadResult,
	done func(contract.LoadResult),
) *loads {
	return &loads{read: read, done: done, running: running, flight: make(chan struct{}, claim.Loads), queues: map[string][]contract.Won{}}
}

// add adds rows to the queues of their types. Rows that are not read when ctx ends stay claimed
// until the dispatcher leaves.
func (l *loads) add(ctx context.Context, rows []contract.Won) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range rows {
		typ := rows[i].Type
		if _, reading := l.queues[typ]; !reading {
			l.running.Go(func() { l.run(ctx, typ) })
		}
		l.queues[typ] = append(l.queues[typ], rows[i])
	}
}

// run reads the rows of a type until none is left.
func (l *loads) run(ctx context.Context, typ string) {
	for rows := l.next(typ, nil); len(rows) > 0; {
		select {
		case <-ctx.Done():
			return
		case l.flight <- struct{}{}: // in the order in which types wait
		}
		result := l.read(ctx, contract.LoadRequest{Rows: rows})
		<-l.flight
		if result.Verdict == contract.OK {
			rows, result.Rest = result.Rest, nil
			l.done(result)
		} else {
			background.Pause(ctx, loadPause)
		}
		rows = l.next(typ, rows)
	}
}

// next returns the rows of a type that are read next. The rows that were not read in the last
// turn come first. If there are no rows, the goroutine of the type must end.
func (l *loads) next(typ string, rest []contract.Won) []contract.Won {
	l.mu.Lock()
	defer l.mu.Unlock()
	queue := slices.Concat(rest, l.queues[typ])
	n := min(len(queue), loadRows)
	if l.queues[typ] = queue[n:]; n == 0 {
		delete(l.queues, typ)
	}
	return queue[:n:n]
}
