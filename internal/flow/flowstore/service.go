package flowstore

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/claim"
	"github.com/dispatcherd/dispatcherd/internal/background"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/flow"
)

// Times of the service.
const (
	settleTime  = time.Second
	searchRest  = 10 * time.Millisecond // between two searches, or as long as the last one took
	repairEvery = 12 * time.Hour
	repairPause = time.Second      // after each portion
	expireEvery = 10 * time.Minute // also after a start
)

// Table does the steps of targets; see Store.
type Table interface {
	Step(ctx context.Context, target dispatcherd.JobID, l flow.Limits) (Result, error)
	Due(ctx context.Context, after dispatcherd.JobID) ([]Due, error)
	SetAside(ctx context.Context, target dispatcherd.JobID, why error) error
	Repair(ctx context.Context, previous dispatcherd.JobID) (next dispatcherd.JobID, err error)
	Expire(ctx context.Context, keep time.Duration) (more bool, err error)
}

// Service does steps for targets: first for those of jobs that have ended here, and for those that heartbeats and notifications find.
type Service struct {
	Table Table
	Keep  time.Duration         // how long ended batches and flows are kept
	Log   *zap.Logger           // nil = none
	Wake  func(contract.Topics) // of the service
	Clock func() time.Time

	mu      sync.Mutex
	turns   flow.Turns
	own     map[dispatcherd.JobID][]dispatcherd.JobID // the targets of jobs that run here
	settled map[dispatcherd.JobID]chan struct{}       // closed when a target has no turn any more

	searchAt time.Time // the next search begins not before
	expireAt time.Time // zero before the first step
	repairAt time.Time
	repaired dispatcherd.JobID // the last target of the repair that is under way
}

// mostOwn bounds the noted jobs. All are forgotten then, because some have ended elsewhere. Searches find the ends of the others.
const mostOwn = 100_000

// Services returns the background services. They run on all dispatchers.
func (s *Service) Services() []background.Service {
	if s.Log == nil {
		s.Log = zap.NewNop()
	}
	return []background.Service{
		{Name: "flows", Topics: contract.EndsRecorded, Step: s.step},
		{Name: "flow search", Topics: contract.EndsWait, Step: s.search},
		{Name: "flow upkeep", Step: s.upkeep},
	}
}

// Claimed notes the rows that a claim took.
func (s *Service) Claimed(rows []contract.Won) {
	for i := range rows {
		switch w := &rows[i]; {
		case w.Target > 0:
			s.note(w.ID, w.Target)
		case w.Target == -w.ID:
			s.note(w.ID, w.ID)
		case w.Target < 0:
			s.note(w.ID, -w.Target, w.ID)
		}
	}
}

// Watched notes a job that runs here and has inserted children.
func (s *Service) Watched(job dispatcherd.JobID) { s.note(job, job) }

func (s *Service) note(job dispatcherd.JobID, targets ...dispatcherd.JobID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.own == nil || len(s.own) == mostOwn {
		s.own = map[dispatcherd.JobID][]dispatcherd.JobID{}
	}
	s.own[job] = append(s.own[job], targets...)
}

// Finished takes the result of a finish. Heartbeats find the ends of jobs for which others began to wait after the claim, and of adopted
// jobs.
func (s *Service) Finished(request *contract.FinishRequest, result *contract.FinishResult) {
	if result.Verdict != contract.OK {
		return
	}
	found := false
	s.mu.Lock()
	for i := 0; i < len(request.Items) && len(s.own) > 0; i++ {
		id := request.Items[i].ID
		for _, target := range s.own[id] {
			s.turns.Add(target, "", true)
			found = true
		}
		delete(s.own, id)
	}
	s.mu.Unlock()
	if found {
		s.Wake(contract.EndsRecorded)
	}
}

// search gives all targets that have messages a turn. It is a service of its own, because steps must go on while it is slow or fails. It
// takes at most half of the time.
func (s *Service) search(ctx context.Context, _ background.Now) (wait time.Duration, err error) {
	begun := s.Clock()
	if wait = s.searchAt.Sub(begun); wait > 0 {
		return wait, nil
	}
	for after := dispatcherd.JobID(0); ; {
		found, err := s.Table.Due(ctx, after)
		if len(found) == 0 {
			now := s.Clock()
			s.searchAt = now.Add(max(now.Sub(begun), searchRest))
			return time.Hour, err
		}
		s.mu.Lock()
		for _, d := range found {
			s.turns.Add(d.ID, d.Owner, false)
		}
		s.mu.Unlock()
		s.Wake(contract.EndsRecorded)
		after = found[len(found)-1].ID
	}
}

// step does a step of the target that has the next turn.
func (s *Service) step(ctx context.Context, _ background.Now) (wait time.Duration, err error) {
	s.mu.Lock()
	id, limits, wait := s.turns.Next(s.Clock())
	s.mu.Unlock()
	if id != 0 {
		return 0, s.stepOf(ctx, id, limits)
	}
	return cmp.Or(wait, time.Hour), nil
}

// stepOf does a step of a target.
func (s *Service) stepOf(ctx context.Context, id dispatcherd.JobID, limits flow.Limits) error {
	begun := s.Clock()
	r, err := s.Table.Step(ctx, id, limits)
	now := s.Clock()
	perhaps, certain := aboutTarget(err)
	s.mu.Lock()
	aside := false
	if err == nil {
		s.turns.Done(id, r.Left, r.Busy, now.Sub(begun)/time.Duration(max(r.Rounds, 1)), now)
	} else {
		aside = s.turns.Failed(id, certain, now)
	}
	if settled := s.settled[id]; settled != nil && !s.turns.Has(id) {
		close(settled)
		delete(s.settled, id)
	}
	s.mu.Unlock()
	if r.OthersTold {
		s.Wake(contract.EndsWait)
	}
	if r.Wrong > 0 {
		s.Log.Warn("flows: counters of an open batch or flow were wrong and are corrected: rows were deleted or changed by hand",
			zap.Int64("job", int64(id)), zap.Int("counters", r.Wrong))
	}
	if aside {
		// The message is not logged, because it may quote a row.
		s.Log.Error("flows: a batch or flow is set aside, because its smallest step fails; 'dispatcherd batch show' says why, and "+
			"'dispatcherd flow repair' tries again", zap.Int64("job", int64(id)), zap.String("sqlstate", claim.AnswerCode(err)))
		return s.Table.SetAside(ctx, id, err)
	}
	if perhaps {
		return nil
	}
	return err
}

// aboutTarget reports whether a step has perhaps, or certainly, failed because of what its target contains. A statement may take too long,
// or a page may be unreadable, for another reason.
func aboutTarget(err error) (perhaps, certain bool) {
	code := claim.AnswerCode(err)
	class := code[:min(2, len(code))]
	certain = slices.Contains([]string{"22", "23", "54", "P0", "XX"}, class)
	return certain || code == "57014" || class == "40" || class == "58", certain
}

// Settle gives a target a turn, and waits until nothing is left, but for a second only. So callers of the API see at once what they have
// asked for. The target is not fresh: steps of many callers would delay the callbacks of others.
func (s *Service) Settle(ctx context.Context, id dispatcherd.JobID) {
	s.mu.Lock()
	s.turns.Add(id, "", false)
	if s.settled == nil {
		s.settled = map[dispatcherd.JobID]chan struct{}{}
	}
	if s.settled[id] == nil {
		s.settled[id] = make(chan struct{})
	}
	settled := s.settled[id]
	s.mu.Unlock()
	s.Wake(contract.EndsRecorded)
	ctx, cancel := context.WithTimeout(ctx, settleTime)
	defer cancel()
	select {
	case <-settled:
	case <-ctx.Done():
	}
}

// upkeep deletes what has ended long ago, and has all open targets repaired.
func (s *Service) upkeep(ctx context.Context, present background.Now) (wait time.Duration, err error) {
	now := present.At
	if s.repairAt.IsZero() {
		s.repairAt, s.expireAt = now.Add(expireEvery), now.Add(expireEvery)
	}
	if !now.Before(s.expireAt) {
		if more, err := s.Table.Expire(ctx, s.Keep); err != nil || more {
			return 0, err
		}
		s.expireAt = now.Add(expireEvery)
	}
	if !now.Before(s.repairAt) {
		if s.repaired, err = s.Table.Repair(ctx, s.repaired); err != nil || s.repaired != 0 {
			return repairPause, err
		}
		s.repairAt = now.Add(repairEvery)
	}
	return min(s.expireAt.Sub(now), s.repairAt.Sub(now)), nil
}
