package rig

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dispatcherd/dispatcherd/tools/lab/internal/program"
)

// Crew is a group of worker processes whose jobs do nothing.
type Crew struct {
	processes []*Process
}

// Crew starts worker processes of this checkout with the given number of slots each. All
// slots support the first types types.
func (r *Rig) Crew(socket string, processes, slots, types int) (*Crew, error) {
	return crew(r.Own.Noop, program.Dispatcher{Socket: socket}, processes, slots, typeNames(types))
}

func typeNames(n int) string {
	names := make([]string, n)
	for i := range names {
		names[i] = TypeName(i)
	}
	return strings.Join(names, ",")
}

func crew(file string, at program.Dispatcher, processes, slots int, types string) (*Crew, error) {
	c := &Crew{}
	for i := range processes {
		p, err := Run(fmt.Sprintf("worker %d", i), nil, file, append(at.Args(), "-slots", strconv.Itoa(slots), "-types", types)...)
		if err != nil {
			return nil, errors.Join(err, c.Stop())
		}
		c.processes = append(c.processes, p)
	}
	return c, nil
}

// Begun returns the time at which the first job started, as reported by the
// workers. Once one worker has started a job it does not wait for the others.
func (c *Crew) Begun() (time.Time, error) {
	first := make(chan int64, len(c.processes))
	failed := make(chan error, len(c.processes))
	for _, p := range c.processes {
		go func() {
			at, err := p.ExpectInt("first")
			if err != nil {
				failed <- err
				return
			}
			first <- at
		}()
	}
	select {
	case at := <-first:
		// Other workers may have started a job earlier.
		all := []int64{at}
		deadline := time.After(100 * time.Millisecond)
		for len(all) < len(c.processes) {
			select {
			case at := <-first:
				all = append(all, at)
				continue
			case <-failed: //nolint:errcheck // those that began are enough
			case <-deadline:
			}
			break
		}
		return time.Unix(0, slices.Min(all)), nil
	case err := <-failed:
		return time.Time{}, err
	}
}

// CPU returns the total processor time of the workers.
func (c *Crew) CPU() time.Duration {
	var sum time.Duration
	for _, p := range c.processes {
		sum += CPU(p.PID())
	}
	return sum
}

// Stop ends all workers.
func (c *Crew) Stop() error {
	var errs []error
	for _, p := range c.processes {
		errs = append(errs, p.Stop())
	}
	return errors.Join(errs...)
}
