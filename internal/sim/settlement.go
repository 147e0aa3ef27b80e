package sim

import (
	"context"
	"time"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/actor/event"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/flow/flowstore"
	"github.com/dispatcherd/dispatcherd/internal/flow/settlement"
)

// settler runs the settlement of one incarnation of a host. It is the settlement.Table. A nil settler does nothing.
type settler struct {
	*settlement.Settlement
	routine
}

// settler starts the settlement of a host.
func (c *joined) settler(h *host) *settler {
	if c.rate == 0 {
		return nil
	}
	s := &settler{}
	s.Settlement = settlement.New(settlement.Config{Table: s, Wake: s.wake})
	s.begin(h, opSettle, hostSettles, s.Service())
	return s
}

// CountEnds implements settlement.Table.
func (s *settler) CountEnds(ctx context.Context) (flowstore.Counted, error) {
	if err := s.do(ctx, func(*statement) {}); err != nil {
		return flowstore.Counted{}, err
	}
	counted := s.answer.tx.Counted
	return flowstore.Counted{Ends: counted.Ends, Blocked: counted.Blocked}, nil
}

// Repair implements settlement.Table. No row is changed by hand.
func (s *settler) Repair(context.Context, dispatcherd.JobID) (next dispatcherd.JobID, wrong int, err error) {
	return 0, 0, nil
}

// Expire implements settlement.Table. Ended batches are kept.
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
	h.step(event.Spawned{Request: s.spawn, Result: result})
}
