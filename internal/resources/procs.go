package resources

import (
	"context"
	"errors"
	"os"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
)

// Procs is on how many processors the daemon's Go code runs at once: a
// number, Auto, or 0 to leave it as it is.
type Procs int

// Auto is one processor while there is little to do, all of them otherwise.
const Auto Procs = -1

// maxProcs is far beyond any machine.
const maxProcs = 4096

// Set parses auto or a number.
func (p *Procs) Set(s string) error {
	if s == "auto" {
		*p = Auto
		return nil
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 || n > maxProcs {
		return errors.New("give auto or a number of processors, such as 2")
	}
	*p = Procs(n)
	return nil
}

// String is what Set takes.
func (p *Procs) String() string {
	if *p == Auto {
		return "auto"
	}
	return strconv.Itoa(int(*p))
}

// Type names the kind of value in help texts.
func (p *Procs) Type() string { return "auto|N" }

// gear decides between one processor and all.
//
// While a goroutine is at work, whatever it wakes has Go's runtime wake another
// thread too, if a processor is idle. That thread finds nothing, because the work
// is over in microseconds, but it looks for it on the processor that a worker or
// a caller needs just then. With one processor there is no such thread. Changing
// over stops the program for some 20 µs.
//
// How much of the time that is used with all processors goes into such looking
// cannot be told, so whether one would do is tried. A try that fails has slowed the
// daemon down for one look, and makes the next one rarer.
type gear struct {
	one    bool          // one processor
	seen   bool          // there was a look before
	at     time.Duration // of the last look
	used   time.Duration // processor time until then
	calm   time.Duration // how long one has sufficed, or might have, up to the last look
	failed int           // tries, one after the other
}

const (
	gearLook = 100 * time.Millisecond // between two looks
	gearUp   = 75                     // percent of one processor between two looks above which one is not enough
	gearDown = 100                    // percent below which one might be
	gearCalm = time.Second            // how long it must stay so, and how long one must suffice for the try to have succeeded
	gearRare = 6                      // doublings of gearCalm at most: a try a minute
)

// look takes the time and the processor time used so far, and reports whether
// one processor is the right number now.
func (g *gear) look(now, used time.Duration) (one bool) {
	span, work := now-g.at, used-g.used
	first := !g.seen
	g.at, g.used, g.seen = now, used, true
	if first || span <= 0 {
		return g.one
	}
	percent := 100 * work / span
	switch {
	case g.one && percent > gearUp:
		if g.calm < gearCalm {
			g.failed = min(g.failed+1, gearRare)
		} else {
			g.failed = 0
		}
		g.one, g.calm = false, 0
	case g.one || percent < gearDown:
		g.calm += span
		if !g.one && g.calm >= gearCalm<<g.failed {
			g.one, g.calm = true, 0
		}
	default:
		g.calm = 0
	}
	return g.one
}

// SteerProcs keeps the number of processors as --procs says, until ctx is done.
func (f *Footprint) SteerProcs(ctx context.Context) {
	all := runtime.GOMAXPROCS(0)
	switch want := f.Procs; {
	case want > 0:
		runtime.GOMAXPROCS(int(want))
		return
	case want == 0 || all == 1:
		return
	}
	defer runtime.GOMAXPROCS(all)
	_, fixed := os.LookupEnv("GOMAXPROCS")
	began := time.Now()
	tick := time.NewTicker(gearLook)
	defer tick.Stop()
	g := gear{one: true, calm: gearCalm} // a daemon begins with little to do, and one that does not has tried nothing
	runtime.GOMAXPROCS(1)
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		used, err := processorTime()
		if err != nil {
			f.Log.Warn("--procs auto cannot tell the load and uses all processors", zap.Error(err))
			return
		}
		used -= f.Idle()
		was := g.one
		switch one := g.look(time.Since(began), used); {
		case one == was:
		case one:
			runtime.GOMAXPROCS(1)
			f.changed.WithLabelValues("one").Inc()
		default:
			useAll(all, fixed)
			f.changed.WithLabelValues("all").Inc()
		}
	}
}

// useAll goes back to all processors: those of the environment variable, or
// those that the machine and the process's quota have now.
func useAll(all int, fixed bool) {
	if fixed {
		runtime.GOMAXPROCS(all)
		return
	}
	runtime.SetDefaultGOMAXPROCS()
}

// processorTime is what the process has used so far, in its own code and in the
// kernel.
func processorTime() (time.Duration, error) {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0, err
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), nil
}

// newProcsCounter counts how often the number of processors was changed.
func newProcsCounter() *prometheus.CounterVec {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "dispatcherd_processors_changed_total", Help: "Changes between one processor and all (--procs auto).",
	}, []string{"to"})
	c.WithLabelValues("one")
	c.WithLabelValues("all")
	return c
}
