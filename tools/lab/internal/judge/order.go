package judge

import (
	"runtime"
	"sync"

	"github.com/anishathalye/porcupine"

	"github.com/dispatcherd/dispatcherd/tools/lab/internal/history"
)

// The model of one job is a register. It is inserted once, claimed with the next
// attempt, and released or ended by the attempt that holds it. Executions do not
// change it; an execution that starts must find that its attempt has been claimed.
type state struct {
	there, running, final bool
	attempt               int32
}

type verb int

const (
	insert verb = iota
	claimed
	started
	back
	ended
	seen // the final row
)

type operation struct {
	verb    verb
	attempt int32
	final   bool // for a final row: it is in a final table
}

var model = porcupine.Model{
	Init: func() any { return state{} },
	Step: func(s, input, _ any) (bool, any) { return s.(state).step(input.(operation)) },
}

func (s state) step(op operation) (bool, state) {
	next := s
	live := s.there && s.running && s.attempt == op.attempt
	switch op.verb {
	case insert:
		next.there = true
		return !s.there, next
	case claimed:
		next.running, next.attempt = true, op.attempt
		return s.there && !s.running && !s.final && op.attempt == s.attempt+1, next
	case started:
		return s.there && s.attempt >= op.attempt, s
	case back:
		next.running = false
		return live, next
	case ended:
		next.running, next.final = false, true
		return live, next
	case seen:
		return s.there && s.attempt == op.attempt && s.final == op.final, s
	}
	return false, s
}

// order asks Porcupine whether a valid order of the operations exists. Jobs do not
// depend on each other, so each job is checked separately.
func (r *Report) order(jobs map[int64]*job) {
	ids := make(chan int64, 1024)
	var (
		mu   sync.Mutex
		some sync.WaitGroup
		bad  []int64
	)
	for range runtime.GOMAXPROCS(0) {
		some.Go(func() {
			for id := range ids {
				if !porcupine.CheckOperations(model, operations(jobs[id])) {
					mu.Lock()
					bad = append(bad, id)
					mu.Unlock()
				}
			}
		})
	}
	for _, id := range sortedIDs(jobs) {
		if j := jobs[id]; j.batch != nil && j.row != nil {
			ids <- id
		}
	}
	close(ids)
	some.Wait()
	for _, id := range bad {
		r.find(&r.Disorder, "disorder", id, "its logs have no valid order")
	}
}

// operations returns the operations of a job with the span in which each took
// effect. The row lock orders the transactions of a job, so a change took effect at
// about the time at which its trigger ran. The end of an attempt took effect only
// after the worker had ended the attempt.
func operations(j *job) []porcupine.Operation {
	ops := make([]porcupine.Operation, 0, len(j.changes)+len(j.runs)+2)
	add := func(op operation, from, to int64) {
		ops = append(ops, porcupine.Operation{Input: op, Call: min(from, to), Return: to})
	}
	made := j.batch.Ended
	if j.batch.Fate != history.Committed {
		made = Forever
	}
	add(operation{verb: insert}, j.batch.Begun, made)
	slack := history.Slack.Nanoseconds()
	for _, c := range j.changes {
		from, to := c.At-slack, c.At+slack
		switch c.Kind {
		case history.Claimed:
			add(operation{verb: claimed, attempt: c.Attempt}, from, to)
		case history.Back:
			add(operation{verb: back, attempt: c.Attempt}, from, to)
		case history.Ended:
			if end := j.endByWorker(c.Attempt); end > 0 {
				from = max(from, end)
			}
			add(operation{verb: ended, attempt: c.Attempt}, from, to)
		case history.Inserted, history.Adopted, history.Illegal, history.Lost, history.Updated:
		}
	}
	for _, e := range j.runs {
		add(operation{verb: started, attempt: e.Attempt}, e.Start, e.Start)
	}
	final := j.row.Status != "pending" && j.row.Status != "running"
	add(operation{verb: seen, attempt: j.row.Attempt, final: final}, Forever-1, Forever)
	return ops
}

// endByWorker returns when a worker had ended the attempt, or 0 if none did.
func (j *job) endByWorker(attempt int32) int64 {
	for _, e := range j.runs {
		if e.Attempt == attempt && e.End != 0 {
			return e.End
		}
	}
	return 0
}
