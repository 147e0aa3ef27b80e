package sim

import (
	"github.com/dispatcherd/dispatcherd/actor/event"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/shell"
)

// reportAdopt passes the answer to an adoption to the core.
func (h *host) reportAdopt(s *statement) {
	ev := event.Adopted{Request: s.adopt, Result: contract.AdoptResult{Verdict: s.verdict}}
	if s.verdict == contract.OK {
		ev.Result = s.tx.Adopted
	}
	ev.Result = h.lease.Adopted(h.time(), ev.Result)
	h.step(ev)
	if shell.TookOver(ev.Request, &ev.Result) {
		h.adopted = true
		if !h.beating {
			h.heartbeat()
		}
	}
}
