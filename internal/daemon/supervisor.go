package daemon

import (
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/dispatcherd/dispatcherd/actor"
	"github.com/dispatcherd/dispatcherd/internal/background"
)

// Supervisor informs the service manager that started the daemon, such as systemd. The zero value informs no service manager.
type Supervisor struct {
	Notify   func(message string) (sent bool, err error) // sends a message such as READY=1; nil = none is sent
	Watchdog time.Duration                               // the service manager restarts a daemon that is silent for so long; 0 = it does not
}

// notifySupervisor sends a message to the supervisor. It logs a failure and continues.
func (d *Daemon) notifySupervisor(message string) {
	if d.cfg.Supervisor.Notify == nil {
		return
	}
	if _, err := d.cfg.Supervisor.Notify(message); err != nil {
		d.log.Warn("notifying the supervisor failed", zap.String("message", message), zap.Error(err))
	}
}

// watchdog returns the service that sends watchdog messages. If the loop is stuck, Ask does not return, and no message is sent.
func (d *Daemon) watchdog() background.Service {
	limit := d.cfg.Supervisor.Watchdog
	if limit == 0 {
		return background.Service{}
	}
	return background.Service{Name: "watchdog", Step: func(context.Context, background.Now) (time.Duration, error) {
		if d.loop.Ask(func(*actor.Core) {}) {
			d.notifySupervisor("WATCHDOG=1")
		}
		return limit / 3, nil
	}}
}
