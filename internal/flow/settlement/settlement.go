// Package settlement counts the ends of jobs for which other jobs wait.
//
// A background service sends settlements: after the ends of such jobs here, after notifications, and after a heartbeat if there
// may be records of ends, for example those of a dispatcher that was killed. A heartbeat finds only that there was an end some time ago. So
// after a settlement that found none, the next one because of a heartbeat follows after lookPause: an end is counted within this time even
// if its notification is lost, unless another transaction has locked its batch.
package settlement

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/background"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/flow/flowstore"
)

// Times of the service.
const (
	blockedPause = 2 * time.Millisecond // after a settlement that met a locked batch; doubled each time
	blockedMost  = time.Second
	lookPause    = 10 * time.Second
	repairEvery  = 12 * time.Hour
	expireEvery  = 10 * time.Minute // also after a start until the first repair, and after a repair that failed
)

// countedMost bounds the noted jobs. Heartbeats find the ends of others.
const countedMost = 100_000

// Table sends the statements; see flowstore.Settler.
type Table interface {
	// CountEnds counts ends.
	CountEnds(ctx context.Context) (flowstore.Counted, error)
	// Repair compares the counters of the next batch or flow with the rows.
	Repair(ctx context.Context, previous dispatcherd.JobID) (next dispatcherd.JobID, wrong int, err error)
	// Expire deletes a portion of what has ended long ago.
	Expire(ctx context.Context, keep time.Duration) (more bool, err error)
}

// Config configures a Settlement.
type Config struct {
	Table Table
	Keep  time.Duration         // how long ended batches and flows are kept
	Log   *zap.Logger           // nil = none
	Wake  func(contract.Topics) // of the service
}

// Settlement is the state of the service.
type Settlement struct {
	Config

	mu      sync.Mutex
	counted map[dispatcherd.JobID]struct{} // jobs that run here and whose ends are recorded

	pause    time.Duration     // after a settlement that met a locked batch
	repairAt time.Time         // zero before the first step
	repaired dispatcherd.JobID // the last batch of the repair that is under way
	expireAt time.Time
	lookAt   time.Time // no settlement before because of a heartbeat
}

// New returns a Settlement that waits.
func New(c Config) *Settlement {
	if c.Log == nil {
		c.Log = zap.NewNop()
	}
	return &Settlement{Config: c, counted: map[dispatcherd.JobID]struct{}{}}
}

// Service returns the background service. It runs on all dispatchers.
func (s *Settlement) Service() background.Service {
	return background.Service{Name: "flows", Topics: contract.EndsRecorded | contract.EndsWait, Step: s.step}
}

// Claimed notes the rows that a claim took.
func (s *Settlement) Claimed(rows []contract.Won) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range rows {
		if rows[i].Counted {
			s.note(rows[i].ID)
		}
	}
}

// Watched notes a job that runs here and has inserted children.
func (s *Settlement) Watched(job dispatcherd.JobID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.note(job)
}

// note needs mu.
func (s *Settlement) note(job dispatcherd.JobID) {
	if len(s.counted) < countedMost {
		s.counted[job] = struct{}{}
	}
}

// Finished takes the result of a finish. Jobs that other jobs began to wait for after the claim, and adopted jobs, are not
// noted: heartbeats find their ends.
func (s *Settlement) Finished(request *contract.FinishRequest, result *contract.FinishResult) {
	if result.Verdict != contract.OK {
		return
	}
	found := false
	s.mu.Lock()
	if len(s.counted) > 0 {
		for i := range request.Items {
			id := request.Items[i].ID
			if _, counted := s.counted[id]; counted {
				found = true
				delete(s.counted, id)
			}
		}
	}
	s.mu.Unlock()
	if found {
		s.Wake(contract.EndsRecorded)
	}
}

// step does a portion of all that is due. So ends are counted while many rows are deleted.
func (s *Settlement) step(ctx context.Context, present background.Now) (wait time.Duration, err error) {
	now := present.At
	if s.repairAt.IsZero() {
		s.repairAt, s.expireAt = now.Add(expireEvery), now.Add(expireEvery)
	}
	if wait := s.lookAt.Sub(now); present.Woken == contract.EndsWait && wait > 0 {
		return wait, nil
	}
	counted, err := s.Table.CountEnds(ctx)
	if err != nil {
		return 0, err
	}
	s.lookAt = time.Time{}
	if counted == (flowstore.Counted{}) {
		s.lookAt = now.Add(lookPause)
	}
	if s.pause = min(2*s.pause, blockedMost); !counted.Blocked {
		s.pause = 0
	} else if s.pause == 0 {
		s.pause = blockedPause
	}
	moreRepairs, failedRepair := s.repair(ctx, now)
	moreOld, failedExpiry := s.expire(ctx, now)
	if err := errors.Join(failedRepair, failedExpiry); err != nil {
		return 0, err
	}
	wait = min(s.repairAt.Sub(now), s.expireAt.Sub(now))
	switch {
	case counted.More || moreRepairs || moreOld:
		return 0, nil
	case counted.Blocked:
		return min(wait, s.pause), nil
	}
	return wait, nil
}

// repair corrects the counters of the next batch if a repair is due. more says that there may be further ones.
func (s *Settlement) repair(ctx context.Context, now time.Time) (more bool, err error) {
	if now.Before(s.repairAt) {
		return false, nil
	}
	next, wrong, err := s.Table.Repair(ctx, s.repaired)
	switch {
	case err != nil:
		s.repairAt = now.Add(expireEvery)
		s.repaired = max(s.repaired, next) // the others are compared
	case next == 0:
		s.repairAt, s.repaired = now.Add(repairEvery), 0
	default:
		s.repaired = next
	}
	if wrong > 0 {
		s.Log.Warn(
			"flows: counters of an open job were wrong and are corrected: rows of jobs were deleted or changed by hand",
			zap.Int64("job", int64(next)),
			zap.Int("counters", wrong),
		)
	}
	return err == nil && next > 0, err
}

// expire deletes a portion of what has ended long ago if that is due.
func (s *Settlement) expire(ctx context.Context, now time.Time) (more bool, err error) {
	if now.Before(s.expireAt) {
		return false, nil
	}
	if more, err = s.Table.Expire(ctx, s.Keep); !more {
		s.expireAt = now.Add(expireEvery)
	}
	return more, err
}
