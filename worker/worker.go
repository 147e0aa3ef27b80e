package worker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/workerproto"
)

// Handler executes one job. The result is encoded as JSON; a json.RawMessage
// is taken as it is, nil is no result. See the package comment for errors and
// for the context.
type Handler func(ctx context.Context, job *Job) (result any, err error)

// Options configure a Worker. Only Socket is needed.
type Options struct {
	Socket string        // path of the dispatcher's socket
	Name   string        // for people; default host name and process id
	Grace  time.Duration // for running jobs once Run's context is done; default 30 s
	// After Grace contexts are cancelled, and Abandon later Run gives up on
	// handlers that do not return; default 10 s.
	Abandon time.Duration
	// Reconnecting waits MinBackoff, doubling to MaxBackoff, each with jitter;
	// defaults 20 ms and 5 s.
	MinBackoff, MaxBackoff time.Duration
	// KeptReports bounds the bytes of results that were sent and may not have been
	// read: if the connection breaks they are sent again. Default 16 MiB.
	KeptReports int

	Connected    func(workerproto.Welcome) // may be nil
	Disconnected func(error)               // may be nil; also called for every failed try to connect, but not for what Run returns
	Complaint    func(*workerproto.Error)  // may be nil; the dispatcher refused something
}

func (o Options) withDefaults() Options {
	if o.Name == "" {
		host, err := os.Hostname()
		if err != nil {
			host = "worker"
		}
		o.Name = fmt.Sprintf("%.100s-%d", host, os.Getpid())
	}
	span := func(field *time.Duration, value time.Duration) {
		if *field <= 0 {
			*field = value
		}
	}
	span(&o.Grace, 30*time.Second)
	span(&o.Abandon, 10*time.Second)
	span(&o.MinBackoff, 20*time.Millisecond)
	span(&o.MaxBackoff, 5*time.Second)
	if o.KeptReports <= 0 {
		o.KeptReports = 16 << 20
	}
	if o.Connected == nil {
		o.Connected = func(workerproto.Welcome) {}
	}
	if o.Disconnected == nil {
		o.Disconnected = func(error) {}
	}
	if o.Complaint == nil {
		o.Complaint = func(*workerproto.Error) {}
	}
	return o
}

// Worker is a process with slots. Make one with New.
type Worker struct {
	opts Options
	room int // bytes for running work in a hello, as the last dispatcher had it; of Run's goroutine

	telling sync.Mutex // held while a letter is written and posted; taken before mu

	mu       sync.Mutex
	handlers map[string]Handler
	slots    map[int32]*slot // also removed ones that are still at work
	next     int32           // number of the next slot
	conn     *workerproto.Conn
	started  bool
	draining bool
	busy     int           // executions that have not ended
	idle     chan struct{} // closed when draining and busy is 0
	hands    hands
	resume   time.Duration // how long executions may go on without a connection
	kept     int           // bytes of reports in slots' last
	era      int           // grows while a connection lives
}

// slot is one slot of the worker.
type slot struct {
	workerproto.Slot
	announced bool       // the dispatcher knows it, on the current connection
	removed   bool       // no more jobs; forgotten once run is nil
	run       *execution // nil while free
	last      *execution // whose report may not have been read, or nil
}

// New returns a worker without handlers and slots.
func New(opts Options) *Worker {
	return &Worker{
		opts:     opts.withDefaults(),
		handlers: make(map[string]Handler),
		slots:    make(map[int32]*slot),
		idle:     make(chan struct{}),
	}
}

// Handle registers the handler of a type, before Run.
func (w *Worker) Handle(jobType string, h Handler) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.handlers[jobType] = h
}

// Slots adds n slots, each of which can do all the types; before Run, once for
// each kind of slot.
func (w *Worker) Slots(n int, types ...string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.addLocked(n, types)
}

// AddSlots is Slots for a running worker, and returns the slots' numbers. The
// error says which type has no handler; then nothing is added.
func (w *Worker) AddSlots(n int, types ...string) (numbers []int32, err error) {
	w.tell(func(l *letter) {
		if err = w.checkTypes(types); err == nil {
			numbers = w.addLocked(n, types)
			w.announceLocked(l)
		}
	})
	return numbers, err
}

// RemoveSlots takes slots off line: they get no more jobs, and a busy one ends
// its job first. Unknown numbers are ignored.
func (w *Worker) RemoveSlots(numbers ...int32) {
	w.tell(func(l *letter) { w.removeLocked(l, numbers) })
}

func (w *Worker) removeLocked(l *letter, numbers []int32) {
	var gone []int32
	for _, n := range numbers {
		sl := w.slots[n]
		if sl == nil || sl.removed {
			continue
		}
		sl.removed = true
		if sl.announced {
			gone = append(gone, n)
		}
		w.forgetLocked(sl)
	}
	if len(gone) > 0 && w.conn != nil {
		l.add(&workerproto.SlotRemove{Slots: gone})
		w.announceLocked(l) // there may be room for others now
	}
}

func (w *Worker) addLocked(n int, types []string) []int32 {
	types = slices.Compact(slices.Sorted(slices.Values(types)))
	numbers := make([]int32, 0, n)
	for range n {
		w.slots[w.next] = &slot{Slot: workerproto.Slot{Number: w.next, Types: types}}
		numbers = append(numbers, w.next)
		w.next++
	}
	return numbers
}

func (w *Worker) forgetLocked(sl *slot) {
	if sl.removed && sl.run == nil {
		w.dropLocked(sl)
		delete(w.slots, sl.Number)
	}
}

func (w *Worker) checkTypes(types []string) error {
	if len(types) == 0 {
		return errors.New("a slot needs at least one type")
	}
	for _, t := range types {
		if w.handlers[t] == nil {
			return fmt.Errorf("type %q has no handler: call Handle first", t)
		}
	}
	return nil
}

// start checks what New, Handle and Slots have built.
func (w *Worker) start() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.started {
		return errors.New("worker: Run may be called once")
	}
	w.started = true
	for _, sl := range w.slots {
		if err := w.checkTypes(sl.Types); err != nil {
			return fmt.Errorf("worker: slot %d: %w", sl.Number, err)
		}
	}
	if n := len(w.opts.Name); n > dispatcherd.MaxWorkerLength {
		return fmt.Errorf("worker: name of %d bytes, the limit is %d", n, dispatcherd.MaxWorkerLength)
	}
	return nil
}
