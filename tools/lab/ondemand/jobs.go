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

// jobLength is the duration of a queued job.
const jobLength = 5 * time.Millisecond

// serveJobs is a worker that returns the payload of requests at once. Queued jobs
// take jobLength.
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
