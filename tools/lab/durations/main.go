// Command durations measures expected durations: the waits of recorded workloads with exact, rough, false and
// no expected durations, whether a job is passed by more than W, and the time of a fetch. It prints one line
// and exits with 1 if a value is out of range.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/dispatcherd/dispatcherd/tools/lab/internal/figure"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/rate"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/stage"
)

func main() {
	short := flag.Bool("short", false, "run a shorter form of all parts")
	parts := flag.String("parts", "off,replays,random,plain,fetch", "parts to run, separated by commas")
	base := flag.String("base", "", "plain: commit to compare with; empty = the last one without expected durations")
	traces := flag.String("traces", "../../../shared/traces", "folder with the recorded traces bank_january and openb33")
	flag.Parse()
	replicas, histories, rows := uint64(8), 1_000_000, 1_000_000
	if *short {
		replicas, histories, rows = 1, 10_000, 100_000
	}
	os.Exit(figure.Report("durations", func(ctx context.Context) (all, details figure.Figures, err error) {
		run := map[string]func() (figures, more figure.Figures, err error){
			"off":     func() (f, m figure.Figures, err error) { f, err = Off(*traces); return f, nil, err },
			"replays": func() (f, m figure.Figures, err error) { return Replays(*traces, replicas) },
			"random":  func() (f, m figure.Figures, err error) { f, err = Random(ctx, histories); return f, nil, err },
			"plain":   func() (f, m figure.Figures, err error) { f, err = plain(ctx, *base, *short); return f, nil, err },
			"fetch":   func() (f, m figure.Figures, err error) { return Fetch(ctx, rows) },
		}
		for part := range slices.Values(strings.Split(*parts, ",")) {
			if run[part] == nil {
				return all, details, fmt.Errorf("-parts %q: %w", part, errPart)
			}
			figures, more, err := run[part]()
			all, details = append(all, figures...), append(details, more...)
			if err != nil {
				return all, details, fmt.Errorf("%s: %w", part, err)
			}
		}
		return all, details, nil
	}))
}

var errPart = errors.New("the parts are off, replays, random, plain and fetch")

// firstFile was added by the first commit of expected durations.
const firstFile = "migrations/sql/00041_expected_duration.sql"

// plain compares the rates of plain jobs and of COPY with those of another commit, while expected durations do not count.
func plain(ctx context.Context, base string, short bool) (figure.Figures, error) {
	root, err := stage.ProductDir(ctx)
	if err != nil {
		return nil, err
	}
	jobs, copied, err := rate.Plain(ctx, root, base, firstFile, short)
	return figure.Figures{figure.AtLeast("noop", jobs, 0.98), figure.AtLeast("copy", copied, 0.97)}, err
}
