package stage

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/dispatcherd/dispatcherd/tools/lab/internal/fault"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/history"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/program"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/rig"
)

// Offer is a number of slots of a worker and the types that each of them supports.
type Offer struct {
	Slots int
	Types []string
}

// Worker is a worker process that is restarted whenever it ends. Each process has
// its own log.
type Worker struct {
	*rig.Keeper

	Name   string
	Daemon *Daemon // nil = it is remote
	Slots  int
	// Links are the proxies of remote workers: for each member of the process one to each daemon. None with Direct or a Host.
	Links [][]*fault.Proxy
	Host  rig.Host
	logs  func(life int) []string // one file for each member
}

// startWorkers starts the workers.
func (s *Stage) startWorkers(ctx context.Context, o *Setup) error {
	busy := s.Daemons[o.Idle:]
	n := len(busy) * o.Workers
	start := func(i int) (*Worker, error) { return s.startWorker(i, busy[i%len(busy)], o.Offers) }
	if s.remote != nil { // a worker that finds no listener goes to the next daemon, and stays there
		for _, d := range busy {
			if err := d.AwaitReady(ctx, time.Minute); err != nil {
				return err
			}
		}
		n, start = o.Workers, func(i int) (*Worker, error) { return s.startRemote(i, busy, o) }
	}
	for i := range n {
		w, err := start(i)
		if err != nil {
			return err
		}
		s.Workers = append(s.Workers, w)
	}
	return nil
}

// startWorker starts the i-th worker and connects it to one daemon's proxy.
func (s *Stage) startWorker(i int, d *Daemon, offers []Offer) (*Worker, error) {
	w := &Worker{Name: fmt.Sprint("w", i), Daemon: d}
	w.logs = func(life int) []string { return []string{s.logOf(w, life, 0)} }
	groups := w.offer(offers, 1)
	reach := program.Dispatcher{Socket: d.workersAt()}
	out, err := os.Create(filepath.Join(s.dir, fmt.Sprintf("w%d.out", i)))
	if err != nil {
		return nil, err
	}
	w.Keeper = rig.Keep(out, true, func(life int) *exec.Cmd {
		return exec.Command(s.Worker, append(reach.Args(), "-name", fmt.Sprintf("w%d.%d", i, life),
			"-log", w.logs(life)[0], "-slots", groups, "-types", strings.Join(s.types, ","))...)
	})
	return w, nil
}

// offer adds the slots of the members of the process, and returns the slots of one as an argument.
func (w *Worker) offer(offers []Offer, members int) string {
	groups := make([]string, len(offers))
	for k, o := range offers {
		groups[k] = strconv.Itoa(o.Slots) + ":" + strings.Join(o.Types, ",")
		w.Slots += o.Slots * members
	}
	return strings.Join(groups, ";")
}

// logOf is the file of the log of a member of a process; "" = none.
func (s *Stage) logOf(w *Worker, life, member int) string {
	if !s.logs {
		return ""
	}
	return filepath.Join(s.dir, fmt.Sprintf("%s.%d.%d.log", w.Name, life, member))
}

// read returns the logs of all processes.
func (w *Worker) read() ([]history.Process, error) {
	var all []history.Process
	lives := w.Lives()
	byPID := map[int]rig.Life{}
	for _, l := range lives {
		byPID[l.PID] = l
	}
	for life := range len(lives) + 1 { // a process that could not be started has a number as well
		for _, file := range w.logs(life) {
			p, err := history.ReadProcess(file)
			if os.IsNotExist(err) {
				continue // the process was killed before it could write anything
			}
			if err != nil {
				return nil, err
			}
			l := byPID[p.PID]
			if p.Keeper = w.Name; w.Daemon != nil {
				p.Daemon = w.Daemon.Name
			}
			p.Began, p.Died, p.Killed = l.Started, l.Died, l.Killed
			all = append(all, p)
		}
	}
	return all, nil
}
