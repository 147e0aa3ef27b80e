// Command chaos breaks dispatcherd in every way the project knows of and
// checks that it keeps its promises (docs/reliability.md). It prints a line for
// each experiment and exits 0 only if all of them held.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"regexp"
	"strings"
	"syscall"
	"time"

	"github.com/dispatcherd/dispatcherd/harness/internal/stage"
	"github.com/dispatcherd/dispatcherd/harness/internal/trial"
)

func main() {
	size := flag.String("size", "normal", "short, normal or long")
	only := flag.String("only", "", "regular expression of the experiments to run")
	list := flag.Bool("list", false, "tell what the experiments are, and end")
	seed := flag.Uint64("seed", 0, "of the dice; 0 = by the clock")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	held, err := run(ctx, *size, *only, *seed, *list)
	if err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
	}
	if err != nil || !held {
		os.Exit(1)
	}
}

var errSize = errors.New("give short, normal or long")

func run(ctx context.Context, sizeName, only string, seed uint64, list bool) (held bool, err error) {
	size, ok := map[string]trial.Size{"short": trial.Short, "normal": trial.Normal, "long": trial.Long}[sizeName]
	if !ok {
		return false, fmt.Errorf("-size %q: %w", sizeName, errSize)
	}
	pattern, err := regexp.Compile(only)
	if err != nil {
		return false, fmt.Errorf("-only: %w", err)
	}
	if list {
		for _, t := range trial.All() {
			fmt.Printf("%-20s %s\n", t.Name, t.About)
		}
		return true, nil
	}
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	house, err := stage.Open(ctx, "")
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, house.Close()) }()
	fmt.Printf("chaos: seed=%d size=%s revision=%s\n", seed, sizeName, revision(ctx))
	held = true
	for _, t := range trial.All() {
		if !pattern.MatchString(t.Name) {
			continue
		}
		o, err := trial.Run(ctx, house, t, size, seed)
		if err != nil {
			return false, err
		}
		fmt.Println(o.Line)
		if len(o.Failures) > 0 {
			held = false
			o.Tell(os.Stdout)
		}
	}
	return held, ctx.Err()
}

// revision names what is tried; outside of a checkout it is unknown.
func revision(ctx context.Context) string {
	out, err := exec.CommandContext(ctx, "git", "describe", "--tags", "--always", "--dirty").Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(out))
}
