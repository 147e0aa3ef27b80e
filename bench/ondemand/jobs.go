package main

import (
	"context"
	"os"
	"strconv"
	"time"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/worker"
)

// workerProcess is the hidden argument that makes this program the worker.
const workerProcess = "worker-process"

// jobLength is how long a queued job keeps its slot.
const jobLength = 5 * time.Millisecond

// serveJobs gives callers their payload back at once, and lets queued jobs
// take their time.
func serveJobs(ctx context.Context, socket, slots string) error {
	n, err := strconv.Atoi(slots)
	if err != nil {
		return err
	}
	w := worker.New(worker.Options{Socket: socket})
	w.Handle(jobType, func(_ context.Context, job *worker.Job) (any, error) {
		if job.Mode == dispatcherd.OnDemand {
			return job.Payload, nil
		}
		time.Sleep(jobLength)
		return nil, nil
	})
	w.Slots(n, jobType)
	if _, err := os.Stdout.WriteString("ready\n"); err != nil {
		return err
	}
	return w.Run(ctx)
}
