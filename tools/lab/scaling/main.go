package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dispatcherd/dispatcherd/tools/lab/internal/program"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/rig"
)

// study is one invocation of the command.
type study struct {
	rig     *rig.Rig
	short   bool
	minutes float64
	warm    time.Duration // pause before the first window
	window  time.Duration
	windows int
}

// curve is a subcommand.
type curve struct {
	name     string
	draw     func(*study, context.Context) error
	settings map[string]string // settings of the server in addition to the rig's
	log      int               // gigabytes of log files that exist from the start; 0 = one
}

// curves are in the order of "all".
var curves = []curve{
	{"slots", (*study).slots, nil, 0},
	{"types", (*study).types, nil, 0},
	{"dispatchers", (*study).dispatchers, nil, 0},
	{"backlog", (*study).backlog, aQuarter, 7},
	{"snapshot", (*study).snapshot, everyMinute, 0},
}

func main() {
	var s study
	flag.BoolVar(&s.short, "short", false, "smaller sizes and shorter windows")
	flag.Float64Var(&s.minutes, "minutes", 0, "snapshot: minutes for which it is held (default 10, short 3)")
	flag.Parse()
	program.Main("scaling", func(ctx context.Context) error { return s.run(ctx, flag.Args()) })
}

func (s *study) run(ctx context.Context, names []string) error {
	var known []string
	for _, c := range curves {
		known = append(known, c.name)
	}
	if len(names) == 1 && names[0] == "all" {
		names = known
	}
	if len(names) == 0 {
		return fmt.Errorf("name a curve: %s or all", strings.Join(known, ", "))
	}
	s.warm, s.window, s.windows = 3*time.Second, 5*time.Second, 5
	if s.short {
		s.warm, s.window, s.windows = 2*time.Second, 2*time.Second, 3
	}
	if s.minutes <= 0 {
		s.minutes = map[bool]float64{false: 10, true: 3}[s.short]
	}
	for _, name := range names {
		i := slices.Index(known, name)
		if i < 0 {
			return fmt.Errorf("there is no curve %q; there are %s and all", name, strings.Join(known, ", "))
		}
		if err := s.drawOn(ctx, curves[i]); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// drawOn draws one curve on its own server.
func (s *study) drawOn(ctx context.Context, c curve) (err error) {
	if s.rig, err = rig.Start(ctx, rig.Options{Settings: c.settings, Log: c.log}); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.rig.Close()) }()
	return c.draw(s, ctx)
}
