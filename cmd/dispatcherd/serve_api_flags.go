package main

import (
	"github.com/spf13/pflag"

	"github.com/dispatcherd/dispatcherd/cmd/dispatcherd/internal/settings"
	"github.com/dispatcherd/dispatcherd/internal/daemon"
)

// registerAPI adds the settings of the API.
func (f *serveFlags) registerAPI(flags *pflag.FlagSet) {
	f.cfg.API = daemon.DefaultAPIConfig()
	c := &f.cfg.API
	flags.StringVar(&c.Listen, "api-listen", "", "also serve the API on this TCP address, such as 127.0.0.1:8088")
	flags.StringVar(&c.TokenFile, "api-tokens", "", "file of the bearer tokens TCP callers need: a name and the token's SHA-256 in hex on each line")
	flags.IntVar(&c.MaxPayload, "max-payload", c.MaxPayload, "bytes of the body of one request or job")
	flags.Int64Var(&c.MaxBodies, "max-body-bytes", c.MaxBodies, "bytes of the bodies of all requests and single jobs that are held at a time")
	flags.Int64Var(&c.MaxUpload, "max-upload", c.MaxUpload, "bytes of a stream of jobs")
	flags.DurationVar(&c.DefaultTimeout, "request-timeout", c.DefaultTimeout, "deadline of a request that names none")
	flags.DurationVar(&c.MaxTimeout, "max-request-timeout", c.MaxTimeout, "longest deadline a request may ask for")
	flags.IntVar(&c.MaxConnections, "max-api-connections", c.MaxConnections, "connections of callers; beyond it idle ones make room")
	flags.IntVar(&c.MaxHeader, "max-api-header", c.MaxHeader, "bytes of the headers of a request")
	flags.DurationVar(&c.HeaderTimeout, "api-header-timeout", c.HeaderTimeout, "for the headers of a request")
	flags.DurationVar(&c.BodyTimeout, "api-body-timeout", c.BodyTimeout, "for a body, and for each silence in a stream of jobs")
	flags.DurationVar(&c.WriteTimeout, "api-write-timeout", c.WriteTimeout, "for a response from its first byte, and for each event")
	flags.DurationVar(&c.IdleTimeout, "api-idle-timeout", c.IdleTimeout, "between two requests of a connection")
	flags.DurationVar(&c.Heartbeat, "api-heartbeat", c.Heartbeat, "silence on an event stream after which a comment is sent")
	flags.IntVar(&c.Runs, "max-runs", c.Runs, "requests that stream, are kept, or are shared, current and kept")
	flags.IntVar(&c.Keys, "max-keys", c.Keys, "Idempotency-Keys of requests, current and kept")
	flags.DurationVar(&c.KeepRuns, "keep-answers", c.KeepRuns, "how long answers are kept for idempotency keys and respond-async")
	flags.Int64Var(&c.KeepBytes, "max-run-bytes", c.KeepBytes, "bytes of all events and answers kept")
	flags.IntVar(&c.EventsOfRun, "max-events", c.EventsOfRun, "events kept for a slow reader of a stream")
	flags.DurationVar(&c.RowPoll, "answer-poll", c.RowPoll, "between two looks at rows that callers wait for and another dispatcher may run")
	flags.IntVar(&c.Connections, "api-database-connections", c.Connections, "connections to Postgres for callers")
	settings.Between(flags, "1", settings.MostHeld, "max-api-connections", "max-runs", "max-keys", "max-events")
	settings.Between(flags, "1", "1000", "api-database-connections") // Postgres has a hundred for everybody unless told otherwise
	settings.Between(flags, "1", settings.MostInMessage, "max-payload")
	settings.Between(flags, "1", "1048576", "max-api-header")
	settings.Between(flags, "1", settings.MostBytes, "max-upload", "max-body-bytes", "max-run-bytes")
	settings.Between(flags, "1ms", settings.Longest, "request-timeout", "max-request-timeout", "keep-answers")
	settings.Between(flags, "1ms", settings.LongestWait, "api-header-timeout", "api-body-timeout", "api-write-timeout", "api-idle-timeout", "api-heartbeat",
		"answer-poll")
}
