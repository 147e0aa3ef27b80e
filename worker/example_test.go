//go:build unix

package worker_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/dispatcherd/dispatcherd/worker"
)

// A worker with four slots for two types and one for a third. On SIGTERM or Ctrl-C
// it takes no new jobs and lets running jobs finish.
func Example() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()

	w := worker.New(worker.Options{
		Socket: "/run/dispatcherd/worker.sock",
		Grace:  20 * time.Second,
	})
	w.Handle("pdf", func(ctx context.Context, job *worker.Job) (any, error) {
		var in struct{ Pages int }
		if err := job.Decode(&in); err != nil {
			return nil, err // permanent: the payload is the same at each attempt
		}
		for page := range in.Pages {
			if ctx.Err() != nil {
				return nil, ctx.Err() // cancelled, timed out, lost or stopping
			}
			job.Progress(int64(page+1), int64(in.Pages), "rendering")
		}
		return map[string]int{"pages": in.Pages}, nil
	})
	w.Handle("excel", func(context.Context, *worker.Job) (any, error) {
		return nil, worker.RetryAfter(errors.New("the sheet is locked"), time.Minute)
	})
	w.Handle("convert", worker.Command("convert", "-", "png:-"))
	w.Slots(4, "pdf", "excel")
	w.Slots(1, "convert")
	if err := w.Run(ctx); err != nil {
		log.Print(err)
	}
}

// Slots can be added and removed while the worker runs.
func ExampleWorker_AddSlots() {
	w := worker.New(worker.Options{Socket: "/run/dispatcherd/worker.sock"})
	w.Handle("pdf", worker.Command("pdf-tool"))
	numbers, err := w.AddSlots(2, "pdf")
	fmt.Println(numbers, err)
	w.RemoveSlots(numbers[0])
	_, err = w.AddSlots(1, "excel")
	fmt.Println(err)
	// Output:
	// [0 1] <nil>
	// type "excel" has no handler: call Handle first
}
