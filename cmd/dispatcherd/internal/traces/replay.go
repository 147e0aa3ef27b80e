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

// replayHost is the running daemon as a replay sees it.
type replayHost interface {
	// Socket is where workers connect.
	Socket() string
	// Insert makes queued jobs in one transaction, due at once.
	Insert(ctx context.Context, jobs []replayJob) error
	// Request carries out one on-demand job and returns when it is answered; an
	// error is any answer but success.
	Request(ctx context.Context, job replayJob) error
	// Tally counts the queued jobs of the replay that have reached an end.
	Tally(ctx context.Context) (done, failed int, err error)
	// Findings judges the placements so far.
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
	start func(context.Context, workerPlan) (*tracedWorker, error) // one worker process
	live  func(replayState)                                        // called ten times a second
	stall time.Duration                                            // without progress after the last arrival: given up

	mu     sync.Mutex
	state  replayState
	failed int // on-demand jobs that were not answered well
	runs   []workerRun
	broken error // the first thing that makes going on useless
	moved  chan struct{}
}

// replayState is what a watcher may want to know.
type replayState struct {
	Jobs, Arrived, Answered, Executed int
	TraceMS                           int64         // how far the trace has come
	Late                              time.Duration // the most that an arrival was late
}

// run carries out the replay. The report is as complete as the replay was; an
// error says why it was cut short. Every worker process has ended when it
// returns.
func (r *replay) run(ctx context.Context) (trace.Report, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r.state.Jobs = len(r.trace.Jobs)
	r.moved = make(chan struct{}, 1)
	workers, err := r.startWorkers(ctx)
	if err == nil {
		err = r.play(ctx, workers)
	}
	for _, w := range workers {
		err = errors.Join(err, w.stop())
	}
	return r.report(err)
}

func (r *replay) startWorkers(ctx context.Context) ([]*tracedWorker, error) {
	var workers []*tracedWorker
	for _, plan := range workerPlans(r.trace, r.host.Socket(), r.speed) {
		w, err := r.start(ctx, plan)
		if err != nil {
			return workers, fmt.Errorf("start worker %s: %w", plan.Worker, err)
		}
		workers = append(workers, w)
	}
	for _, w := range workers {
		if err := w.ready(); err != nil {
			return workers, err
		}
	}
	return workers, nil
}

// play lets the trace begin and waits for its end.
func (r *replay) play(ctx context.Context, workers []*tracedWorker) error {
	begin := time.Now().Add(100 * time.Millisecond)
	for _, w := range workers {
		if err := w.begin(begin); err != nil {
			return err
		}
		go func() { r.fail(w.listen(r.executed)) }()
	}
	var callers sync.WaitGroup
	defer callers.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	queued := make(chan []replayJob, 1024)
	callers.Go(func() { r.fail(r.insert(ctx, queued)) })
	err := r.feed(ctx, begin, queued, &callers)
	close(queued)
	if err != nil {
		return err
	}
	return r.awaitEnds(ctx)
}

// insert makes the queued jobs, in one transaction all that gathered while the
// last one was under way.
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

// feed submits every job at its compressed arrival.
func (r *replay) feed(ctx context.Context, begin time.Time, queued chan<- []replayJob, callers *sync.WaitGroup) error {
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	for jobs := r.trace.Jobs; len(jobs) > 0; {
		due := begin.Add(compress(jobs[0].ArrivalMS, r.speed))
		if !r.waitUntil(ctx, due, ticker.C, begin) {
			return errors.Join(ctx.Err(), r.failure())
		}
		now := time.Since(begin)
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

// waitUntil waits for an instant and shows the state meanwhile; false if the
// replay cannot go on.
func (r *replay) waitUntil(ctx context.Context, due time.Time, tick <-chan time.Time, begin time.Time) bool {
	timer := time.NewTimer(time.Until(due))
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
			return r.failure() == nil
		case <-tick:
			r.note(func(s *replayState) { s.TraceMS = decompress(time.Since(begin), r.speed) })
			r.show()
			if r.failure() != nil {
				return false
			}
		case <-ctx.Done():
			return false
		}
	}
}

// submit hands jobs in: queued ones together, on-demand ones each to a
// goroutine that waits for its answer.
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

// awaitEnds waits until every job has come to an end, or until nothing has moved
// for too long.
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
			return fmt.Errorf("nothing has moved for %v", r.stall)
		case <-ctx.Done():
			return ctx.Err()
		}
		r.show()
		if over, err := r.over(ctx); over || err != nil {
			return err
		}
	}
}

// over reports whether nothing is left to wait for. What the workers say about
// the last jobs may be under way still when the jobs have ended.
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

// answered takes the end of an on-demand job.
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

// executed takes what a worker says about one execution.
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

// fail remembers the first trouble; nil is none.
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

// report sums up, also what was cut short.
func (r *replay) report(cause error) (trace.Report, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	done, failed, err := r.host.Tally(ctx)
	r.mu.Lock()
	defer r.mu.Unlock()
	executions := make([]trace.Execution, len(r.runs))
	for i, run := range r.runs {
		executions[i] = trace.Execution{Job: run.Job, Slot: run.Slot, StartMS: decompress(run.Start, r.speed), EndMS: decompress(run.End, r.speed)}
	}
	failed += r.failed
	report := trace.Summarize(r.trace, executions, failed, r.host.Findings())
	report.Done = min(report.Done, done+r.state.Answered)
	report.Findings.Lost = max(report.Findings.Lost, report.Jobs-report.Done-failed)
	return report, errors.Join(cause, err)
}
