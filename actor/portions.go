package actor

import "iter"

// Asker runs functions that read a Core. The functions of this package that take an
// Asker ask for portions of their answer, each with about as much work as
// Limits.StepWork. So other events do not wait for a long answer. If the state changes
// between two portions, the answer may be inexact.
type Asker interface {
	// Ask runs f. It returns false if it cannot run f any more.
	Ask(f func(*Core)) bool
}

// Ask runs f at once. It is for callers that own the Core.
func (c *Core) Ask(f func(*Core)) bool {
	f(c)
	return true
}

// portions is the state of an answer that is computed in portions.
type portions[T any] struct {
	left    int // work that is left for this portion
	found   []T // elements of the answer that this portion has found
	pause   func(struct{}) bool
	resumed func() // called at the begin of each portion but the first one; may be nil
}

// inPortions lets compute run on the Core and returns what it has found. Between two portions the loop handles other
// events. ok is false if the Asker cannot run functions any more.
func inPortions[T any](asker Asker, compute func(*Core, *portions[T])) (list []T, ok bool) {
	var p portions[T]
	var core *Core
	next, stop := iter.Pull(func(yield func(struct{}) bool) {
		p.pause = yield
		compute(core, &p)
	})
	defer stop()
	for more := true; more; {
		if !asker.Ask(func(c *Core) {
			core, p.left = c, c.cfg.Limits.StepWork
			_, more = next()
		}) {
			return nil, false
		}
		list = append(list, p.found...) // not on the loop: a long list takes milliseconds to grow
		p.found = p.found[:0]
	}
	return list, true
}

// spend is called before some work. If this portion has no work left, spend waits for the next one, so anything may have
// changed when it returns. It returns false if no portion follows: then compute must return.
func (p *portions[T]) spend(work int) bool {
	if p.left <= 0 {
		if !p.pause(struct{}{}) {
			return false
		}
		if p.resumed != nil {
			p.resumed()
		}
	}
	p.left -= work
	return true
}
