// Package riverqueue contains what all benchmarks that run River have in common: its
// schema, its connections and its settings.
package riverqueue

import (
	"context"
	"log/slog"
	"os"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

// Noop is a job type of River.
type Noop struct {
	N int `json:"n"`
}

// Kind implements river.JobArgs.
func (Noop) Kind() string { return "noop" }

// Pool has enough connections for River's producer, completer, notifier and
// maintenance.
func Pool(ctx context.Context, dsn string) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, err
	}
	config.MaxConns = 8
	return pgxpool.NewWithConfig(ctx, config)
}

// Migrate creates River's schema in an empty database.
func Migrate(ctx context.Context, pool *pgxpool.Pool) error {
	migrator, err := rivermigrate.New(riverpgxv5.New(pool), nil)
	if err != nil {
		return err
	}
	_, err = migrator.Migrate(ctx, rivermigrate.DirectionUp, nil)
	return err
}

// Config returns River's default settings, with logs of errors only.
func Config() *river.Config {
	return &river.Config{Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))}
}

// Serve makes a client with the configuration execute jobs on the given number of slots.
func Serve(c *river.Config, slots int) {
	c.Queues = map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: slots}}
}

// Tune shortens River's pauses between fetches to their minimum.
func Tune(c *river.Config) {
	c.FetchCooldown, c.FetchPollInterval = time.Millisecond, time.Millisecond
}
