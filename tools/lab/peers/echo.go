package main

import (
	"context"
	"errors"

	"github.com/dispatcherd/dispatcherd/tools/lab/internal/echo"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/stats"
)

const echoTrips = 20_000

// measureEcho returns the p50 of a round trip between two processes over a Unix
// socket in microseconds.
func measureEcho(ctx context.Context) (float64, error) {
	e, err := echo.Start(ctx)
	if err != nil {
		return 0, err
	}
	trips := make([]float64, 0, echoTrips)
	for range echoTrips {
		took, err := e.Trips(1)
		if err != nil {
			return 0, errors.Join(err, e.Close())
		}
		trips = append(trips, float64(took.Nanoseconds())/1000)
	}
	return stats.Quantile(trips, 0.5), e.Close()
}
