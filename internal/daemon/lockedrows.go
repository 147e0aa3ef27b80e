package daemon

import (
	"context"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/claim"
	"github.com/dispatcherd/dispatcherd/internal/contract"
)

// lockCheckPause is the time between two checks for locks.
const lockCheckPause = 5 * time.Second

// lockedRows logs which session has locked a row that a claim lost. It checks one row at a
// time, on a connection of the API.
type lockedRows struct {
	locked func(context.Context, dispatcherd.JobID) (*claim.Lock, error)
	log    *zap.Logger
	lost   chan dispatcherd.JobID
	pause  time.Duration // between two checks; lockCheckPause
}

// claimed passes on the first row that a claim has lost, unless another one waits.
func (l *lockedRows) claimed(req *contract.ClaimRequest, res *contract.ClaimResult) {
	if res.Verdict != contract.OK || res.Rows()+len(res.Unclaimable) >= len(req.IDs) {
		return
	}
	known := make(map[dispatcherd.JobID]bool, len(req.IDs))
	for _, rows := range [...][]contract.Won{res.Won, res.Loading} {
		for i := range rows {
			known[rows[i].ID] = true
		}
	}
	for _, u := range res.Unclaimable {
		known[u.ID] = true
	}
	for _, id := range req.IDs {
		if !known[id] {
			select {
			case l.lost <- id:
			default:
			}
			return
		}
	}
}

func (l *lockedRows) run(ctx context.Context) {
	for {
		select {
		case id := <-l.lost:
			l.check(ctx, id)
		case <-ctx.Done():
			return
		}
		select {
		case <-time.After(l.pause):
		case <-ctx.Done():
			return
		}
	}
}

// check logs the lock of a row. A claim of another dispatcher has a lock for a moment only.
func (l *lockedRows) check(ctx context.Context, id dispatcherd.JobID) {
	ctx, cancel := context.WithTimeout(ctx, claim.DefaultTimeout)
	defer cancel()
	lock, err := l.locked(ctx, id)
	if err != nil || lock == nil || strings.HasPrefix(lock.Application, "dispatcherd claim") {
		return // without an answer, other statements report the failure
	}
	l.log.Warn("a transaction has locked pending jobs, which wait until it ends", jobField(id), zap.Int("locked_by", lock.PID))
}
