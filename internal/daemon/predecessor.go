package daemon

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"go.uber.org/zap"

	"github.com/dispatcherd/dispatcherd/claim"
	"github.com/dispatcherd/dispatcherd/workerproto"
)

// hostLock is the lock beside the worker socket. This process holds it until it has left
// the dispatchers, also after the socket is closed. Therefore the next holder knows that the
// process of the recorded dispatcher has ended.
type hostLock struct {
	claim.Identity          // of this process; its Lock is lockName, "" = the host cannot be identified
	file           *os.File // nil = there is no lock
}

// lockOf returns the lock of the worker socket. For a socket of the service manager, it
// creates the lock. If this process may not create the lock, it runs without one. Then
// only the end of its lease shows that this dispatcher is dead.
func lockOf(path string, l net.Listener) (*hostLock, error) {
	h := &hostLock{file: workerproto.TakeLock(l)}
	_, _ = rand.Read(h.Incarnation[:]) // never fails
	var err error
	if h.file == nil {
		h.file, err = workerproto.Lock(path)
		if errors.Is(err, workerproto.ErrInUse) {
			return nil, socketFailure(err)
		}
		if err != nil {
			return h, nil //nolint:nilerr // the dispatcher runs without the lock, as on a file system without locks
		}
	}
	if h.Lock, err = lockName(h.file); err != nil {
		_ = h.file.Close()
		return nil, err
	}
	return h, nil
}

// release releases the lock, after this dispatcher has left.
func (h *hostLock) release() {
	if h != nil && h.file != nil {
		_ = h.file.Close() // nothing was written after the record
	}
}

// takeoverHold is how long the jobs of a killed predecessor wait for their workers. Living
// workers notice the death at once, and reconnect within seconds. The jobs of those that were
// killed before it wait for a shorter time, down to leastHold.
const (
	takeoverHold = 10 * time.Second
	leastHold    = 2 * time.Second
)

// replacePredecessor declares the previous holder of the lock lost, so that its jobs are
// adopted or released at once. Then it records this process in the lock file. The order
// matters: if the process dies in between, the record of the predecessor remains.
//
// The jobs of the predecessor wait for their workers for takeoverHold, or for a shorter
// lease, and at least as long as its remote workers may continue them. So do those of earlier predecessors.
func (d *Daemon) replacePredecessor(ctx context.Context) error {
	if d.lock.Lock == "" {
		return nil
	}
	if before, known := predecessorOf(d.lock.file, d.lock.Lock); known {
		remote := max(d.cfg.remoteHold(), before.Hold)
		found, err := d.store.DeclareLost(ctx, claim.Identity{Incarnation: claim.Incarnation(before.Incarnation), Lock: before.Lock},
			max(min(d.cfg.Workers.Resume, d.cfg.Lease, takeoverHold), remote), max(leastHold, remote))
		if err != nil {
			return fmt.Errorf("declaring the predecessor lost: %w", err)
		}
		if found {
			d.log.Warn("the previous dispatcher on this socket was killed: its jobs are taken over", zap.String("workers", d.cfg.WorkerSocket))
		}
	}
	if err := recordHolder(d.lock.file, lockRecord{d.lock.Lock, d.lock.Incarnation[:], d.cfg.remoteHold()}); err != nil {
		return fmt.Errorf("recording this process in the lock file %s: %w", d.lock.file.Name(), err)
	}
	return nil
}
