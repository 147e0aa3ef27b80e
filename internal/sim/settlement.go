package sim

import (
	"context"
	"time"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/actor"
	"github.com/dispatcherd/dispatcherd/internal/background"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/flow"
	"github.com/dispatcherd/dispatcherd/internal/flow/flowstore"
)

// settler does the steps of batches and flows for one incarnation of a host. It is the flowstore.Table. A nil settler does nothing.
type settler struct {
	flowstore.Service
	routine

	items int // limit of a step
}

// settler starts the service of a host.
func (c *joined) settler(h *host) *settler {
	if c.rate == 0 {
		return nil
	}
	s := &settler{items: c.items}
	s.Service = flowstore.Service{Table: s, Wake: s.wake, Clock: h.local}
	service, search := s.Services()[0], s.Services()[1] // the simulation does both in one coroutine
	step, due := service.Step, false
	service.Topics |= search.Topics
	service.Step = func(ctx context.Context, now background.Now) (time.Duration, error) {
		rest := time.Hour
		if due = due || now.Woken&search.Topics != 0; due {
			var err error
			if rest, err = search.Step(ctx, now); err != nil {
				return 0, err
			}
			due = rest < time.Hour
		}
		wait, err := step(ctx, now)
		return min(wait, rest), err
	}
	s.begin(h, opSettle, hostSettles, service)
	return s
}

// Step implements flowstore.Table.
func (s *settler) Step(ctx context.Context, target dispatcherd.JobID, l flow.Limits) (r flowstore.Result, err error) {
	l.Items = min(l.Items, s.items)
	if err := s.do(ctx, func(st *statement) { st.target, st.limits = target, l }); err != nil {
		return r, err
	}
	done := s.answer.tx.Stepped
	return flowstore.Result{Left: done.Left, Busy: done.Busy, OthersTold: done.OthersTold}, nil
}

// Due implements flowstore.Table.
func (s *settler) Due(ctx context.Context, after dispatcherd.JobID) (targets []flowstore.Due, err error) {
	if err := s.do(ctx, func(*statement) {}); err != nil || after > 0 {
		return nil, err
	}
	for _, id := range s.answer.tx.Due {
		targets = append(targets, flowstore.Due{ID: id})
	}
	return targets, nil
}

// SetAside implements flowstore.Table. No step fails because of its target.
func (s *settler) SetAside(context.Context, dispatcherd.JobID, error) error { return nil }

// Repair implements flowstore.Table. No row is changed by hand.
func (s *settler) Repair(context.Context, dispatcherd.JobID) (next dispatcherd.JobID, err error) {
	return 0, nil
}

// Expire implements flowstore.Table. Ended batches are kept.
func (s *settler) Expire(context.Context, time.Duration) (more bool, err error) { return false, nil }

func (s *settler) heartbeat(r *contract.HeartbeatResult) {
	if s != nil {
		s.beat(r)
	}
}

func (s *settler) claimed(rows ...[]contract.Won) {
	if s == nil {
		return
	}
	for _, list := range rows {
		s.Claimed(list)
	}
}

func (s *settler) finished(r *contract.FinishRequest, result *contract.FinishResult) {
	if s != nil {
		s.Finished(r, result)
	}
}

// exit is the end of the process.
func (s *settler) exit() {
	if s != nil {
		s.end()
	}
}

// reportSpawn passes the answer to an insertion of children to the core.
func (h *host) reportSpawn(s *statement) {
	result := contract.SpawnResult{Rule: dispatcherd.RuleOutcomeIsKnown}
	if s.verdict != contract.Unknown {
		result = s.tx.Spawned
	}
	if len(result.IDs) > 0 {
		h.settlement.Watched(s.spawn.Parent)
	}
	h.step(actor.Spawned{Request: s.spawn, Result: result})
}
