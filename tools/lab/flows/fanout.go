package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dispatcherd/dispatcherd/client"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/figure"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/history"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/rig"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/stage"
)

// A fan-out of FanOut: its items, the workers that share them, and how many callers send fan-outs one after the other.
const (
	fanOutItems   = 9
	fanOutWorkers = 3
	fanOutCallers = 8
)

// FanOut measures how many fan-outs of nine items to three workers per second are answered.
func FanOut(ctx context.Context, env *rig.Rig, n int) (figures, details figure.Figures, err error) {
	types := []string{history.Chunk}
	st, err := stage.Start(ctx, env, stage.Setup{
		Name:    "fanout",
		Daemons: 1,
		Workers: fanOutWorkers,
		Plain:   true,
		Direct:  true,
		Types:   types,
		Offers:  []stage.Offer{{Slots: fanOutCallers, Types: types}},
	})
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, st.Close(ctx)) }()
	c, err := client.New(client.Options{Socket: st.Daemons[0].API})
	if err != nil {
		return nil, nil, err
	}
	defer c.Close()
	var sent, wrong atomic.Int64
	problems := make([]error, fanOutCallers)
	begun := time.Now()
	var all sync.WaitGroup
	for caller := range fanOutCallers {
		all.Go(func() {
			for problems[caller] == nil && sent.Add(1) <= int64(n) {
				chunks, err := c.Distribute(ctx, client.Distribution{Type: history.Chunk, Items: make([]any, fanOutItems)})
				problems[caller] = err
				if err == nil && !equalShares(chunks) {
					wrong.Add(1)
				}
			}
		})
	}
	all.Wait()
	took := time.Since(begun)
	if err := errors.Join(problems...); err != nil {
		return nil, nil, fmt.Errorf("a fan-out failed: %w", err)
	}
	return figure.Figures{
			figure.AtLeast("fanout_rate", float64(n)/took.Seconds(), 200),
		}, figure.Figures{
			figure.None("fanout_wrong", float64(wrong.Load())),
		}, nil
}

// equalShares reports whether each worker has answered with the number of its items, a third of all.
func equalShares(chunks []client.Chunk) bool {
	workers := map[string]bool{}
	const share = fanOutItems / fanOutWorkers
	for _, c := range chunks {
		if !c.OK || c.Items != share || string(c.Result) != strconv.Itoa(share) {
			return false
		}
		workers[c.Worker] = true
	}
	return len(chunks) == fanOutWorkers && len(workers) == fanOutWorkers
}
