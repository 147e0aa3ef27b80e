package daemon

import (
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/dispatcherd/dispatcherd/workerproto"
)

// permit returns why the user of a worker may not serve a type, or "".
func (d *Daemon) permit(p workerproto.Peer, typ string) string {
	objection := d.cfg.Allow.Objection(p, typ)
	if objection != "" {
		d.metrics.workers.denied.Inc()
		d.denials.warn(p, typ)
	}
	return objection
}

// denialLog logs rejected slots, at most one line per second. Each line states how many
// slots were not logged since the previous line.
type denialLog struct {
	log     *zap.Logger
	skipped atomic.Int64
}

func newDenialLog(log *zap.Logger) *denialLog {
	d := &denialLog{}
	count := zapcore.SamplerHook(func(_ zapcore.Entry, decision zapcore.SamplingDecision) {
		if decision&zapcore.LogDropped != 0 {
			d.skipped.Add(1)
		}
	})
	d.log = log.WithOptions(zap.WrapCore(func(c zapcore.Core) zapcore.Core {
		return zapcore.NewSamplerWithOptions(c, time.Second, 1, 0, count)
	}))
	return d
}

func (d *denialLog) warn(p workerproto.Peer, typ string) {
	if line := d.log.Check(zap.WarnLevel, "a worker offers a type that its user may not serve"); line != nil {
		line.Write(zap.Int("uid", p.UID), zap.Int("gid", p.GID), zap.Int("pid", p.PID), zap.String("type", typ),
			zap.Int64("not_logged_since", d.skipped.Swap(0)))
	}
}
