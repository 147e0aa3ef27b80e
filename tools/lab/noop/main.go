// Command noop is a worker whose jobs do nothing, so that only the cost of
// dispatching is measured. At its first job it prints "first T" (T in nanoseconds
// since 1970).
package main

import (
	"context"
	"flag"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/dispatcherd/dispatcherd/tools/lab/internal/program"
	"github.com/dispatcherd/dispatcherd/worker"
)

func main() {
	var d program.Dispatcher
	d.Flags()
	slots := flag.Int("slots", 250, "slots of this process")
	types := flag.String("types", "", "types that every slot supports, separated by commas")
	flag.Parse()
	program.Main("noop", func(ctx context.Context) error { return work(ctx, d, *slots, strings.Split(*types, ",")) })
}

func work(ctx context.Context, d program.Dispatcher, slots int, types []string) error {
	w := worker.New(d.Options(worker.Options{}))
	var once sync.Once
	handler := func(context.Context, *worker.Job) (any, error) {
		once.Do(func() { fmt.Println("first", time.Now().UnixNano()) })
		return nil, nil
	}
	for _, t := range types {
		w.Handle(t, handler)
	}
	w.Slots(slots, types...)
	return w.Run(ctx)
}
