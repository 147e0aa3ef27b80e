package worker

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	mathrand "math/rand/v2"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/workerproto"
)

// Handler executes one job. The result is encoded as JSON. A []byte or json.RawMessage
// must be JSON and is used unchanged. nil means no result. The package comment describes
// errors and the context.
type Handler func(ctx context.Context, job *Job) (result any, err error)

// Options configure a Worker. Only one of Socket, FindSocket and Dispatcher is required.
type Options struct {
	Socket string // path of the dispatcher's socket
	// Dispatcher has the addresses of dispatchers, separated by commas: unix:///path, or tls://host:port and tcp://127.0.0.1:port.
	// They are tried in their order, so that one dispatcher has the slots of all workers. When the connection to a dispatcher has ended,
	// the worker connects to the next one, and offers to resume its executions there.
	Dispatcher  string
	RandomOrder bool                    // of these addresses, so that the workers are spread over the dispatchers
	Credentials workerproto.Credentials // for tls and tcp
	Name        string                  // for people; default: host name and process id
	Grace       time.Duration           // how long jobs may run after Run's context is done; default 30 s
	// After Grace the contexts of the jobs are cancelled. If handlers still run after a
	// further Abandon, Run returns without waiting for them; default 10 s.
	Abandon time.Duration
	// FindSocket returns the path of the dispatcher's socket. If it is set, Run calls it
	// before each connection, and it replaces Socket.
	FindSocket func() string
	// Before it reconnects, the worker waits for MinBackoff. Each failure doubles the
	// wait, up to MaxBackoff. The wait has jitter. Defaults: 20 ms and 5 s.
	MinBackoff, MaxBackoff time.Duration
	// KeptReports limits the bytes of reports that the worker keeps because the
	// dispatcher may not have read them. If the connection breaks, the worker sends
	// them again. Default 16 MiB.
	KeptReports int

	Connected func(workerproto.Welcome) // may be nil
	// Called for each end of a connection and failed attempt to connect, but not for an error that Run returns.
	// Default: a line in the log of package slog for each new reason.
	Disconnected func(error)
	Complaint    func(*workerproto.Error) // may be nil; called for errors that the dispatcher sends
}

func (o Options) withDefaults() Options {
	if o.Name == "" {
		host, _ := os.Hostname() // "" if it is not known
		o.Name = fmt.Sprintf("%.100s-%d", cmp.Or(host, "worker"), os.Getpid())
	}
	o.Grace = positive(o.Grace, 30*time.Second)
	o.Abandon = positive(o.Abandon, 10*time.Second)
	o.MinBackoff = positive(o.MinBackoff, 20*time.Millisecond)
	o.MaxBackoff = positive(o.MaxBackoff, 5*time.Second)
	o.KeptReports = positive(o.KeptReports, 16<<20)
	if said := ""; o.Disconnected == nil {
		o.Disconnected = func(err error) {
			if text := err.Error(); text != said {
				said = text
				slog.Warn("worker: not connected, retrying", "reason", text)
			}
		}
	}
	return o
}

func positive[T int | time.Duration](value, otherwise T) T {
	if value > 0 {
		return value
	}
	return otherwise
}

// Worker is a process with slots. Make one with New.
type Worker struct {
	opts      Options
	process   string                // random; the same in all connections
	addresses workerproto.Addresses // of dispatchers
	at        int                   // of the addresses, the present one

	// These are used only by Run's goroutine.
	room   int    // bytes for resume offers in a hello, from the last welcome
	stop   func() // makes Run drain
	broken error  // the panic of a function of the Options, which Run returns

	mu        sync.Mutex
	handlers  map[string]Handler
	slots     map[int32]*slot // includes removed slots that are busy
	next      int32           // number of the next slot
	conn      *workerproto.Conn
	leaving   *workerproto.Conn // to be closed when no on-demand request runs on it
	ended     error             // why this worker has ended the connection; nil = another reason
	started   bool
	draining  bool
	busy      int           // executions that have not ended
	idle      chan struct{} // closed when draining and busy is 0
	closeIdle func()
	executors executors
	spawns    spawns
	resume    time.Duration // how long executions may continue without a connection
	kept      int           // bytes of unacknowledged reports
	period    int           // number of the current period; a silent dispatcher is noticed within one period
}

// slot is one slot of the worker.
type slot struct {
	workerproto.Slot
	announced      bool       // the slot was announced on the current connection
	removed        bool       // gets no more jobs; deleted once run is nil
	run            *execution // nil while free
	unacknowledged *execution // the last execution if its report may not have been read; otherwise nil
}

// New returns a worker without handlers and slots.
func New(opts Options) *Worker {
	idle := make(chan struct{})
	return &Worker{
		opts:      opts.withDefaults(),
		process:   rand.Text(),
		handlers:  make(map[string]Handler),
		slots:     make(map[int32]*slot),
		idle:      idle,
		closeIdle: sync.OnceFunc(func() { close(idle) }),
		spawns:    spawns{open: make(chan struct{}, dispatcherd.MaxOpenSpawns), waiting: map[int64]chan *workerproto.Spawned{}},
	}
}

// Handle registers the handler of a type, before Run.
func (w *Worker) Handle(jobType string, h Handler) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.handlers[jobType] = h
}

// Slots adds n slots. Each of them supports all the types. Call Slots before Run, once for
// each set of types.
func (w *Worker) Slots(n int, types ...string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.addLocked(n, types)
}

// AddSlots is like Slots, but may be called while the worker runs. It returns the
// numbers of the slots. If a type has no handler, or there are more than
// dispatcherd.MaxSlotTypes of them, it returns an error and adds nothing.
func (w *Worker) AddSlots(n int, types ...string) (numbers []int32, err error) {
	w.update(func() {
		if err = w.checkTypes(types); err == nil {
			numbers = w.addLocked(n, types)
			w.announceLocked()
		}
	})
	return numbers, err
}

// RemoveSlots removes slots. They get no more jobs. A busy slot first ends its job.
// Unknown numbers are ignored.
func (w *Worker) RemoveSlots(numbers ...int32) {
	w.update(func() { w.removeLocked(numbers) })
}

func (w *Worker) removeLocked(numbers []int32) {
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
		w.deleteRemovedLocked(sl)
	}
	if len(gone) > 0 && w.conn != nil {
		w.conn.Queue(&workerproto.SlotRemove{Slots: gone})
		w.announceLocked() // the limit of slots may have room for others now
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

// deleteRemovedLocked deletes a removed slot once it is free.
func (w *Worker) deleteRemovedLocked(sl *slot) {
	if sl.removed && sl.run == nil {
		w.dropReportLocked(sl)
		delete(w.slots, sl.Number)
	}
}

func (w *Worker) checkTypes(types []string) error {
	if n := len(types); n == 0 || n > dispatcherd.MaxSlotTypes {
		return fmt.Errorf("a slot supports 1 to %d types, not %d: distribute the types over several slots", dispatcherd.MaxSlotTypes, n)
	}
	for _, t := range types {
		if w.handlers[t] == nil {
			return fmt.Errorf("type %q has no handler: call Handle first", t)
		}
	}
	return nil
}

// start checks the configuration.
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
	w.addresses = workerproto.Addresses{workerproto.SocketAddress(w.opts.Socket)}
	if w.opts.Dispatcher != "" && w.opts.FindSocket == nil && w.opts.Socket == "" {
		var err error
		if w.addresses, err = workerproto.ParseWorkerAddresses(w.opts.Dispatcher); err != nil {
			return fmt.Errorf("worker: Dispatcher: %w", err)
		}
		if w.opts.RandomOrder {
			mathrand.Shuffle(len(w.addresses), func(i, j int) { w.addresses[i], w.addresses[j] = w.addresses[j], w.addresses[i] })
		}
		if err = w.opts.Credentials.Check(); err != nil {
			return fmt.Errorf("worker: %w", err)
		}
	} else if w.opts.Socket == "" && w.opts.FindSocket == nil || w.opts.Dispatcher != "" {
		return errors.New("worker: Options must name one dispatcher: set Socket or FindSocket, or Dispatcher")
	}
	if n := len(w.opts.Name); n > dispatcherd.MaxWorkerLength {
		return fmt.Errorf("worker: name of %d bytes, the limit is %d", n, dispatcherd.MaxWorkerLength)
	}
	return nil
}
