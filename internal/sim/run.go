package sim

// Run lets a world live: Steps events with faults, then everything is healed
// and must come to its end. It stops at the first broken promise.
func Run(opt Options) Result { return newWorld(opt).live() }

// live brings the world to its end.
func (w *world) live() Result {
	for w.broken == nil {
		if !w.healing && w.events >= w.opt.Steps {
			w.heal()
		}
		if w.healing && w.events&127 == 0 && w.over() {
			break
		}
		w.next()
	}
	w.stats.Jobs = len(w.table.rows)
	return Result{
		Events: w.events, Lived: w.now.duration(), Hash: w.hash, Stats: w.stats, Violation: w.broken,
	}
}

// next lets the next thing happen.
func (w *world) next() {
	t := w.queue.pop()
	w.now = t.at
	w.events++
	if t.kind < lastOfHost {
		h := w.hosts[t.who]
		switch {
		case h.life != t.life:
		case h.stopped:
			h.inbox = append(h.inbox, t)
		default:
			h.do(&t)
		}
		return
	}
	w.do(&t)
}

// do carries out what does not happen inside a dispatcher's process.
func (w *world) do(t *task) {
	switch t.kind {
	case workerRead:
		w.readAtWorker(w.conns[t.arg])
	case executionEnd:
		w.endExecution(t.arg, t.life)
	case statementAt:
		w.proceed(t.arg, t.life)
	case statementLate:
		w.tooLate(t.arg, t.life)
	case producerTurn:
		w.produce()
	case producerCommit:
		w.commitBatch(t.arg)
	case producerCancel:
		w.cancelSome()
	case faultTurn:
		w.fault()
	case orphanOver:
		w.expire(t.arg, t.life)
	case carryTurn:
		w.shakeCarried()
	case postgresUp:
		w.restorePostgres(t.life)
	case sampleTurn:
		w.sample()
	case hostStart:
		w.hosts[t.who].start()
	case hostContinue:
		w.hosts[t.who].resume()
	default:
		w.workers[t.who].do(t)
	}
}
