// Command hostile is a hostile user of the sockets of a dispatcher: a worker and a caller that hold as much as they can. It runs until
// SIGTERM.
package main

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/dispatcherd/dispatcherd/tools/lab/internal/program"
)

// user is a hostile user.
type user struct {
	api, worker string // the sockets
	all         sync.WaitGroup
}

// attacks are what it can do. They return when the attack has begun.
var attacks = map[string]func(u *user, ctx context.Context) error{
	"answers": (*user).answers,
	"events":  (*user).events,
	"pings":   (*user).pings,
	"spawns":  (*user).spawns,
	"upload":  (*user).upload,
}

// lowest is the priority of the process, so that it takes processor time only from itself: the time that the dispatcher uses is measured.
const lowest = 19

func main() {
	var u user
	attack := flag.String("attack", "", "what to do: "+strings.Join(slices.Sorted(maps.Keys(attacks)), ", "))
	flag.StringVar(&u.api, "api", "", "the daemon's socket for callers")
	flag.StringVar(&u.worker, "worker", "", "the daemon's socket for workers")
	flag.Parse()
	program.Main("hostile", func(ctx context.Context) error {
		begin, ok := attacks[*attack]
		if !ok {
			return fmt.Errorf("-attack %q is unknown", *attack)
		}
		if err := syscall.Setpriority(syscall.PRIO_PROCESS, 0, lowest); err != nil {
			return err
		}
		if err := begin(&u, ctx); err != nil {
			return err
		}
		fmt.Fprintln(os.Stdout, "begun")
		<-ctx.Done()
		return nil
	})
}
