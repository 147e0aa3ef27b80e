package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/dispatcherd/dispatcherd/tools/lab/internal/figure"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/rig"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/stage"
)

// How sessions are measured.
const (
	openPerSecond = 500               // fewer than a user may open
	settleTime    = 150 * time.Second // until the garbage of the handshakes is collected, which happens at least every two minutes
	watchTime     = 30 * time.Second  // of the processor time of idle sessions
)

// cost is what idle sessions cost a daemon.
type cost struct {
	memory, most float64 // megabytes, with all sessions, and at most
	each         float64 // kilobytes for one session
	cpu          float64 // microseconds per second for one session
}

// mostOfUser is how many sessions one user may have of a daemon that may open 20,000 files. Over Unix sockets all of this process are of
// one user. Each token is one.
const mostOfUser = 9000

// Sessions measures n idle sessions of one daemon: over TLS, and over its Unix socket.
func Sessions(ctx context.Context, env *rig.Rig, n int) (figures, details figure.Figures, err error) {
	local, err := measureSessions(ctx, env, min(n, mostOfUser), false)
	if err != nil {
		return nil, nil, err
	}
	remote, err := measureSessions(ctx, env, n, true)
	if err != nil {
		return nil, nil, err
	}
	return figure.Figures{
			figure.AtLeast("sessions", float64(n), float64(n)), figure.AtMost("rss_mb", remote.memory, 400),
			figure.AtMost("session_memory_ratio", remote.each/local.each, 1.5), figure.AtMost("session_cpu_ratio", remote.cpu/local.cpu, 1.5),
		}, figure.Figures{
			figure.AtLeast("rss_most_mb", remote.most, 0), figure.AtLeast("unix_rss_mb", local.memory, 0),
			figure.AtLeast("session_kb", remote.each, 0), figure.AtLeast("unix_session_kb", local.each, 0),
			figure.AtLeast("session_us_per_s", remote.cpu, 0), figure.AtLeast("unix_session_us_per_s", local.cpu, 0),
		}, nil
}

func measureSessions(ctx context.Context, env *rig.Rig, n int, remote bool) (c cost, err error) {
	which := map[bool]string{false: "-unix", true: "-tls"}[remote]
	st, err := stage.Start(ctx, env, stage.Setup{Name: "sessions" + which, Daemons: 1, Remote: true, Direct: true, Plain: true})
	if err != nil {
		return c, err
	}
	defer func() { err = errors.Join(err, st.Close(ctx)) }()
	d, err := newTarget(st, remote)
	if err != nil {
		return c, err
	}
	empty, _ := rig.Memory(d.PID())
	all := &sessions{target: d}
	defer func() { err = errors.Join(err, all.close()) }()
	if err := all.openAll(ctx, n); err != nil {
		return c, err
	}
	if err := rig.Pause(ctx, settleTime); err != nil {
		return c, err
	}
	before := rig.CPU(d.PID())
	if err := rig.Pause(ctx, watchTime); err != nil {
		return c, err
	}
	used := rig.CPU(d.PID()) - before
	now, most := rig.Memory(d.PID())
	m, err := d.Metrics(ctx)
	if err != nil {
		return c, err
	}
	if open := int(m.State("sessions")); open != n {
		return c, fmt.Errorf("%d of %d sessions are open", open, n)
	}
	c.memory, c.most = float64(now)/(1<<20), float64(most)/(1<<20)
	c.each = float64(now-empty) / 1024 / float64(n)
	c.cpu = used.Seconds() * 1e6 / watchTime.Seconds() / float64(n)
	fmt.Fprintf(os.Stderr, "reach: sessions%s: %.0f MB, %.1f kB and %.2f µs/s each\n", which, c.memory, c.each, c.cpu)
	return c, nil
}

// sessions are open sessions of one daemon.
type sessions struct {
	*target

	ends sync.WaitGroup

	mu     sync.Mutex
	all    []*session
	over   bool
	failed error // the first error of a session before close
}

// openAll opens n sessions and waits until each has its welcome.
func (s *sessions) openAll(ctx context.Context, n int) error {
	opening, ctx := errgroup.WithContext(ctx)
	opening.SetLimit(32)
	ticker := time.NewTicker(time.Second / openPerSecond)
	defer ticker.Stop()
	for i := range n {
		<-ticker.C
		opening.Go(func() error {
			one, err := s.open(ctx, i)
			if err != nil {
				return err
			}
			welcomed := make(chan struct{})
			s.keep(one)
			s.ends.Go(func() { s.ended(one.serve(func() { close(welcomed) })) })
			select {
			case <-welcomed:
				return nil
			case <-time.After(time.Minute):
				return fmt.Errorf("session %d has no welcome", i)
			case <-ctx.Done():
				return ctx.Err()
			}
		})
	}
	return opening.Wait()
}

func (s *sessions) keep(one *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, one)
}

func (s *sessions) ended(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.over && s.failed == nil {
		s.failed = fmt.Errorf("a session has ended: %w", errors.Join(err, errFrame))
	}
}

// close ends the sessions. The error says that one of them had ended before.
func (s *sessions) close() error {
	s.mu.Lock()
	s.over = true
	for _, one := range s.all {
		_ = one.Close() // an error is ignored: the connection ends in any case
	}
	s.mu.Unlock()
	s.ends.Wait()
	return s.failed
}
