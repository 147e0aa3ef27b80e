package daemon

import (
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/dispatcherd/dispatcherd/workerproto"
)

// limitedLog logs one message, whose events a client can cause at will. It writes a
// bounded number of lines per second and level. Each line states how many lines were not
// written since the previous one.
type limitedLog struct {
	log     *zap.Logger
	message string
	skipped atomic.Int64
}

func newLimitedLog(log *zap.Logger, perSecond int, message string) *limitedLog {
	l := &limitedLog{message: message}
	count := zapcore.SamplerHook(func(_ zapcore.Entry, decision zapcore.SamplingDecision) {
		if decision&zapcore.LogDropped != 0 {
			l.skipped.Add(1)
		}
	})
	l.log = log.WithOptions(zap.WrapCore(func(c zapcore.Core) zapcore.Core {
		return zapcore.NewSamplerWithOptions(c, time.Second, perSecond, 0, count)
	}))
	return l
}

func (l *limitedLog) write(level zapcore.Level, fields ...zap.Field) {
	if line := l.log.Check(level, l.message); line != nil {
		if n := l.skipped.Swap(0); n > 0 {
			fields = append(fields, zap.Int64("not_logged_since", n))
		}
		line.Write(fields...)
	}
}

// peer writes a warning about a process.
func (l *limitedLog) peer(p workerproto.Peer, field zap.Field) {
	if p.Address != "" {
		l.write(zap.WarnLevel, zap.String("address", p.Address), zap.String("user", p.User()), field)
		return
	}
	l.write(zap.WarnLevel, zap.Int("uid", p.UID), zap.Int("gid", p.GID), zap.Int("pid", p.PID), field)
}
