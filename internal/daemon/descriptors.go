package daemon

import (
	"math"
	"syscall"

	"go.uber.org/zap"

	"github.com/dispatcherd/dispatcherd/internal/exit"
	"github.com/dispatcherd/dispatcherd/workerproto"
)

const (
	// keptDescriptors are left free by the connections of workers and callers. The daemon needs them for its connections to Postgres, for
	// files, and for connections that it refuses.
	keptDescriptors = 160
	// leastConnections is the smallest number of connections of workers and callers with which a daemon starts.
	leastConnections = 64
)

// fitDescriptors lowers the bounds of the connections of workers and callers if the process may not open as many files. Otherwise these
// connections could take the descriptors with which the daemon connects to Postgres again. It returns the number of files for the
// bounds as they were.
func fitDescriptors(files int, workers *workerproto.Limits, api *APIConfig) (needed int, err error) {
	listeners := 1
	if api.Listen != "" {
		listeners++
	}
	connections, room := workers.MaxConnections+listeners*api.MaxConnections, files-keptDescriptors
	if room < min(leastConnections, connections) {
		return 0, exit.Usagef("this process may open %d files, and the dispatcher needs %d at least: raise the limit (ulimit -n, or "+
			"LimitNOFILE= of the systemd unit)", files, keptDescriptors+leastConnections)
	}
	if room < connections {
		workers.MaxConnections = workers.MaxConnections * room / connections
		api.MaxConnections = (room - workers.MaxConnections) / listeners
	}
	return connections + keptDescriptors, nil
}

// checkDescriptors compares the bounds with the number of files that this process may open. Go has already raised the soft limit to the
// hard one.
func (d *Daemon) checkDescriptors() error {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return err
	}
	files := int(min(limit.Cur, math.MaxInt32))
	if d.listensOnTCP() {
		d.listeners.visitors.most = min(maxStrangers, files/8)
		files -= d.listeners.visitors.most
	}
	needed, err := fitDescriptors(files, &d.cfg.Workers, &d.cfg.API)
	if err == nil && needed > files {
		d.log.Warn("this process may open few files, so fewer workers and callers can connect: raise the limit (ulimit -n, LimitNOFILE=)",
			zap.Int("files", files), zap.Int("needed", needed), zap.Int("worker_connections", d.cfg.Workers.MaxConnections),
			zap.Int("api_connections", d.cfg.API.MaxConnections))
	}
	return err
}
