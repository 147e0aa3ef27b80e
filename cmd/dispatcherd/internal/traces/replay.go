package traces

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/trace"
)

// replayHost is the daemon of a replay.
type replayHost interface {
	// Socket is where workers connect.
	Socket() string
	// Insert inserts queued jobs in one transaction, due at once.
	Insert(ctx context.Context, jobs []replayJob) error
	// Request executes one on-demand job and returns when it is answered. Every answer except
	// success is an error.
	Request(ctx context.Context, job replayJob) error
	// Tally returns the number of queued jobs of the replay that have ended.
	Tally(ctx context.Context) (done, failed int, err error)
	// Findings checks the placements so far.
	Findings() trace.Findings
}

// replayJob is one job of a trace, ready to be submitted.
type replayJob struct {
	Type     string
	Priority dispatcherd.Priority
	Payload  []byte
}

// replay runs one trace against a host.
type replay struct {
	trace *trace.Trace
	speed float64
	host  replayHost
	live  func(replayState) // called ten times a second
	stall time.Duration     // the replay fails after this time without progress after the last arrival
	begin time.Time         // of the trace; set before the first slot is offered

	mu     sync.Mutex
	state  replayState
	failed int // on-demand jobs that were not answered with success
	runs   []workerRun
	broken error // the first error that ends the replay
	moved  chan struct{}
}

// replayState is the state of a replay for display.
type replayState struct {
	Jobs, Arrived, Answered, Executed int
	TraceMS                           int64         // the current time of the trace
	Late                              time.Duration // the largest delay of an arrival
}

// run executes the replay. Its report is valid also after an error, which says why the replay
// ended early. All workers have ended when run returns.
func (r *replay) run(ctx context.Context) (trace.Report, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r.state.Jobs = len(r.trace.Jobs)
	r.moved = make(chan struct{}, 1)
	var workers []*tracedWorker
	for _, plan := range workerPlans(r.trace, r.speed) {
		workers = append(workers, r.startWorker(ctx, plan))
	}
	err := r.play(ctx, workers)
	for _, w := range workers {
		err = errors.Join(err, w.stop())
	}
	return r.report(err)
}

// play starts the trace when all workers are connected, and waits for its end.
func (r *replay) play(ctx context.Context, workers []*tracedWorker) error {
	for _, w := range workers {
		if err := w.ready(ctx); err != nil {
			return err
		}
	}
	var callers sync.WaitGroup
	defer callers.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r.begin = time.Now()
	for _, w := range workers {
		for _, s := range w.plan.Slots {
			callers.Go(func() { w.offer(ctx, &tracedSlot{plan: s}) })
		}
	}
	queued := make(chan []replayJob, 1024)
	callers.Go(func() { r.fail(r.insert(ctx, queued)) })
	err := r.feed(ctx, queued, &callers)
	close(queued)
	if err != nil {
		return err
	}
	return r.awaitEnds(ctx)
}

// insert inserts queued jobs. One transaction contains all jobs that arrived during the
// previous one.
func (r *replay) insert(ctx context.Context, queued <-chan []replayJob) error {
	for jobs := range queued {
		for more := true; more; {
			select {
			case next := <-queued:
				jobs = append(jobs, next...)
				more = next != nil
			default:
				more = false
			}
		}
		if err := r.host.Insert(ctx, jobs); err != nil {
			return fmt.Errorf("insert jobs: %w", err)
		}
	}
	return nil
}

// feed submits every job at its compressed arrival time.
func (r *replay) feed(ctx context.Context, queued chan<- []replayJob, callers *sync.WaitGroup) error {
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	for jobs := r.trace.Jobs; len(jobs) > 0; {
		due := r.begin.Add(compress(jobs[0].ArrivalMS, r.speed))
		if !r.waitUntil(ctx, due, ticker.C) {
			return errors.Join(ctx.Err(), r.failure())
		}
		now := time.Since(r.begin)
		n := 0
		for n < len(jobs) && compress(jobs[n].ArrivalMS, r.speed) <= now {
			n++
		}
		if err := r.submit(ctx, jobs[:n], queued, callers); err != nil {
			return err
		}
		r.note(func(s *replayState) { s.Arrived += n; s.Late = max(s.Late, time.Since(due)) })
		jobs = jobs[n:]
	}
	return nil
}

// waitUntil waits for an instant and shows the state meanwhile. It returns false if the replay
// cannot continue.
func (r *replay) waitUntil(ctx context.Context, due time.Time, tick <-chan time.Time) bool {
	timer := time.NewTimer(time.Until(due))
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
			return r.failure() == nil
		case <-tick:
			r.note(func(s *replayState) { s.TraceMS = decompress(time.Since(r.begin), r.speed) })
			r.show()
			if r.failure() != nil {
				return false
			}
		case <-ctx.Done():
			return false
		}
	}
}

// submit submits queued jobs together. It submits each on-demand job in its own goroutine,
// which waits for the answer.
func (r *replay) submit(ctx context.Context, jobs []trace.Job, queued chan<- []replayJob, callers *sync.WaitGroup) error {
	var batch []replayJob
	for _, j := range jobs {
		payload, err := json.Marshal(jobPayload{TraceJob: j.ID, MS: compress(j.DurationMS, r.speed).Seconds() * 1000})
		if err != nil {
			return err
		}
		job := replayJob{Type: j.Type, Priority: j.Priority, Payload: payload}
		if j.Mode == dispatcherd.Queued {
			batch = append(batch, job)
			continue
		}
		callers.Go(func() { r.answered(r.host.Request(ctx, job)) })
	}
	if len(batch) == 0 {
		return nil
	}
	select {
	case queued <- batch:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// awaitEnds waits until every job has ended, or until there was no progress for too long.
func (r *replay) awaitEnds(ctx context.Context) error {
	patience := time.NewTimer(r.stall)
	defer patience.Stop()
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	for {
		select {
		case <-r.moved:
			patience.Reset(r.stall)
			continue
		case <-ticker.C:
		case <-patience.C:
			return fmt.Errorf("no progress for %v", r.stall)
		case <-ctx.Done():
			return ctx.Err()
		}
		r.show()
		if over, err := r.over(ctx); over || err != nil {
			return err
		}
	}
}

// over reports whether all jobs have ended and the workers have reported all executions. The
// reports about the last jobs may arrive after the jobs have ended.
func (r *replay) over(ctx context.Context) (bool, error) {
	if err := r.failure(); err != nil {
		return false, err
	}
	done, failed, err := r.host.Tally(ctx)
	r.mu.Lock()
	defer r.mu.Unlock()
	done += r.state.Answered
	return done+failed+r.failed >= r.state.Jobs && r.state.Executed >= done, err
}

// answered records the end of an on-demand job.
func (r *replay) answered(err error) {
	r.note(func(s *replayState) {
		if err != nil {
			r.failed++
		} else {
			s.Answered++
		}
	})
	r.move()
}

// executed records a worker's report about one execution.
func (r *replay) executed(run workerRun) {
	r.note(func(s *replayState) {
		r.runs = append(r.runs, run)
		s.Executed++
	})
	r.move()
}

func (r *replay) move() {
	select {
	case r.moved <- struct{}{}:
	default:
	}
}

func (r *replay) note(change func(*replayState)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change(&r.state)
}

func (r *replay) show() {
	r.mu.Lock()
	state := r.state
	r.mu.Unlock()
	if r.live != nil {
		r.live(state)
	}
}

// fail records the first error; nil is none.
func (r *replay) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.broken == nil {
		r.broken = err
	}
}

func (r *replay) failure() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.broken
}

// report summarizes the replay, also an interrupted one.
func (r *replay) report(cause error) (trace.Report, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	done, failed, err := r.host.Tally(ctx)
	r.mu.Lock()
	defer r.mu.Unlock()
	executions := make([]trace.Execution, len(r.runs))
	for i, run := range r.runs {
		executions[i] = trace.Execution{
			Job:     run.Job,
			Slot:    run.Slot,
			StartMS: decompress(run.Start, r.speed),
			EndMS:   decompress(run.End, r.speed),
		}
	}
	failed += r.failed
	report := trace.Summarize(r.trace, executions, failed, r.host.Findings())
	report.Done = min(report.Done, done+r.state.Answered)
	report.Findings.Lost = max(report.Findings.Lost, report.Jobs-report.Done-failed)
	return report, errors.Join(cause, err)
}
