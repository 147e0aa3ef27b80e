package rig

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"

	"github.com/dispatcherd/dispatcherd/tools/lab/internal/history"
)

// Keeper runs a program. It may restart it whenever it ends, until Stop is called. It records
// the times of kills and of the ends of processes.
type Keeper struct {
	command func(life int) *exec.Cmd
	restart bool
	log     *os.File

	mu      sync.Mutex
	err     error // how the last process ended
	lives   []Life
	child   *os.Process // nil between two processes
	stop    bool
	rest    time.Duration // before the next start
	ended   chan struct{}
	over    chan struct{} // closed by Stop
	changed chan struct{} // closed and replaced when a process has ended
}

var errStopped = errors.New("stopped")

// Life is one process of a Keeper.
type Life struct {
	PID     int
	Started int64 // history.Now
	Killed  int64 // when Kill was called; 0 = never
	Died    int64 // 0 = it still runs
}

// Keep starts the program, and starts it again whenever it ends if restart is set. life counts
// the processes from 0. The output of the program goes to log.
func Keep(log *os.File, restart bool, command func(life int) *exec.Cmd) *Keeper {
	k := &Keeper{
		command: command, restart: restart, log: log,
		ended: make(chan struct{}), over: make(chan struct{}), changed: make(chan struct{}),
	}
	started := make(chan struct{})
	go k.run(started)
	<-started
	return k
}

// run stays on one thread, because the kernel kills a child when the thread that
// started it ends.
func (k *Keeper) run(started chan<- struct{}) {
	runtime.LockOSThread()
	defer close(k.ended)
	for life := 0; ; life++ {
		begun := time.Now()
		cmd := k.command(life)
		cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = k.log, k.log, DieWithParent()
		err := k.start(cmd)
		if life == 0 {
			close(started)
		}
		running := err == nil
		if running {
			err = cmd.Wait()
		}
		rest, over := k.recordEnd(running, err)
		if over {
			return
		}
		select {
		case <-time.After(rest):
		case <-k.over:
		}
		if time.Since(begun) < 100*time.Millisecond {
			time.Sleep(50 * time.Millisecond) // the program cannot run now, for example because its Postgres is down
		}
	}
}

func (k *Keeper) start(cmd *exec.Cmd) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.stop {
		return errStopped
	}
	at := history.Now()
	if err := cmd.Start(); err != nil {
		fmt.Fprintln(k.log, "starting:", err)
		return err
	}
	k.child = cmd.Process
	k.lives = append(k.lives, Life{PID: cmd.Process.Pid, Started: at})
	return nil
}

// recordEnd records the end of a process. It returns the time before the next start, and
// whether the process was the last one.
func (k *Keeper) recordEnd(started bool, err error) (rest time.Duration, over bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.err = err; started {
		k.lives[len(k.lives)-1].Died = history.Now()
	}
	k.child = nil
	close(k.changed)
	k.changed = make(chan struct{})
	rest, k.rest = k.rest, 0
	return rest, k.stop || !k.restart
}

// Kill sends SIGKILL. It returns the process id and the time just before the
// signal, or 0 if no process was running.
func (k *Keeper) Kill() (pid int, at int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.child == nil || len(k.lives) == 0 {
		return 0, 0
	}
	life := &k.lives[len(k.lives)-1]
	if life.Killed == 0 {
		life.Killed = history.Now()
	}
	_ = k.child.Kill() // it may have ended already
	return life.PID, life.Killed
}

// KillFor sends SIGKILL. The next process starts after a rest.
func (k *Keeper) KillFor(rest time.Duration) {
	k.mu.Lock()
	k.rest = rest
	k.mu.Unlock()
	k.Kill()
}

// Signal sends any other signal. It returns a channel that is closed when the
// current process, or the next one, has ended.
func (k *Keeper) Signal(s syscall.Signal) <-chan struct{} {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.child != nil {
		_ = k.child.Signal(s) // it may have ended already
	}
	return k.changed
}

// Lives returns all processes so far.
func (k *Keeper) Lives() []Life {
	k.mu.Lock()
	defer k.mu.Unlock()
	return append([]Life(nil), k.lives...)
}

// PID returns the id of the current or last process; 0 = none could be started.
func (k *Keeper) PID() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.lives) == 0 {
		return 0
	}
	return k.lives[len(k.lives)-1].PID
}

// AliveAllThrough reports whether one process ran during a whole span.
func (k *Keeper) AliveAllThrough(from, to int64) bool {
	for _, l := range k.Lives() {
		if l.Started < from && (l.Killed == 0 || l.Killed > to) && (l.Died == 0 || l.Died > to) {
			return true
		}
	}
	return false
}

// Stop ends the program for ever: first with SIGTERM, and after the grace period
// with SIGKILL. It returns how the last process ended; nil = without an error.
func (k *Keeper) Stop(grace time.Duration) error {
	k.mu.Lock()
	if !k.stop {
		close(k.over)
	}
	k.stop = true
	k.mu.Unlock()
	k.Signal(syscall.SIGCONT)
	k.Signal(syscall.SIGTERM)
	select {
	case <-k.ended:
	case <-time.After(grace):
		k.Kill()
		<-k.ended
	}
	_ = k.log.Close() // the child has written the file
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.err
}
