package main

import (
	"path/filepath"

	"github.com/dispatcherd/dispatcherd/internal/daemon"
	"github.com/dispatcherd/dispatcherd/internal/exit"
	"github.com/dispatcherd/dispatcherd/internal/shell"
)

const (
	// pingsPerTimeout is how many pings a silent worker gets before it counts as dead,
	// so that one lost ping does not end a session.
	pingsPerTimeout = 3
	// frameSlack is the room in a frame of a worker beside the largest payload.
	frameSlack = 32 << 10
)

// config checks settings that depend on one another, and completes them.
func (f *serveFlags) config() (daemon.Config, error) {
	cfg := f.cfg
	for _, list := range []*daemon.AllowList{&cfg.Allow, &cfg.AllowAPI} {
		if err := list.Check(); err != nil {
			return cfg, exit.Usagef("%w", err)
		}
	}
	cfg.Core.Seed = daemon.NewSeed()
	cfg.Core.Resume = cfg.Workers.Resume
	cfg.Heartbeat = shell.Interval(cfg.Lease)
	cfg.Workers.HeartbeatInterval = cfg.Workers.HeartbeatTimeout / pingsPerTimeout
	cfg.Workers.MaxFrame = max(cfg.Workers.MaxFrame, cfg.API.MaxPayload+frameSlack)
	cfg.Keep.Cancelled = cfg.Keep.Done
	if err := cfg.Core.Validate(); err != nil {
		return cfg, exit.Usagef("%w", err)
	}
	if err := cfg.API.Check(); err != nil {
		return cfg, exit.Usagef("%w", err)
	}
	if !cfg.AllowAPI.Empty() && cfg.API.Listen != "" && cfg.API.TokenFile == "" {
		return cfg, exit.Usagef("--allow-api restricts only the API socket, and --api-listen %s admits all users of the host: add --api-tokens",
			cfg.API.Listen)
	}
	if samePath(cfg.WorkerSocket, cfg.APISocket) {
		return cfg, exit.Usagef("--worker-socket and --api-socket are both %s: workers and callers speak different protocols, give each a path of its own",
			cfg.WorkerSocket)
	}
	return cfg, nil
}

// samePath reports whether two names denote one path. It compares only the names.
func samePath(one, other string) bool {
	a, errA := filepath.Abs(one)
	b, errB := filepath.Abs(other)
	return errA == nil && errB == nil && a == b
}
