package stage

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/dispatcherd/dispatcherd/tools/lab/internal/history"
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
	Daemon *Daemon
	Slots  int
	log    func(life int) string
}

// startWorker starts the i-th worker and connects it to one daemon's proxy.
func (s *Stage) startWorker(i int, d *Daemon, offers []Offer) (*Worker, error) {
	w := &Worker{
		Name:   fmt.Sprint("w", i),
		Daemon: d,
		log:    func(life int) string { return filepath.Join(s.dir, fmt.Sprintf("w%d.%d.log", i, life)) },
	}
	if !s.logs {
		w.log = func(int) string { return "" }
	}
	groups := make([]string, len(offers))
	for k, o := range offers {
		groups[k] = strconv.Itoa(o.Slots) + ":" + strings.Join(o.Types, ",")
		w.Slots += o.Slots
	}
	out, err := os.Create(filepath.Join(s.dir, fmt.Sprintf("w%d.out", i)))
	if err != nil {
		return nil, err
	}
	w.Keeper = rig.Keep(out, true, func(life int) *exec.Cmd {
		return exec.Command(s.Worker, "-socket", d.workersAt(), "-name", fmt.Sprintf("w%d.%d", i, life),
			"-log", w.log(life), "-slots", strings.Join(groups, ";"), "-types", strings.Join(s.types, ","))
	})
	return w, nil
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
		p, err := history.ReadProcess(w.log(life))
		if os.IsNotExist(err) {
			continue // the process was killed before it could write anything
		}
		if err != nil {
			return nil, err
		}
		l := byPID[p.PID]
		p.Keeper, p.Daemon = w.Name, w.Daemon.Name
		p.Began, p.Died, p.Killed = l.Started, l.Died, l.Killed
		all = append(all, p)
	}
	return all, nil
}
