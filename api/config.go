package api

import (
	"fmt"
	"time"

	"github.com/dispatcherd/dispatcherd/internal/ondemand"
)

// Config bounds the resources that callers use. Take DefaultConfig and change it.
type Config struct {
	ondemand.Limits

	Dispatcher string // name in the welcome of callers; "" = the default of package workerproto

	MaxPayload int   // bytes of the body of a request or of one job
	MaxUpload  int64 // bytes of the body of a stream of jobs

	MaxConnections int           // open at once on each listener; above it idle ones are closed
	MaxHeader      int           // bytes of the headers of a request
	HeaderTimeout  time.Duration // from the first byte, or the connect, to the end of the headers
	BodyTimeout    time.Duration // for a body, and for each silence within a stream of jobs
	WriteTimeout   time.Duration // for a response, from its first byte, and for each event of a stream
	IdleTimeout    time.Duration // between two requests of a connection
	Heartbeat      time.Duration // silence on an event stream after which a comment is sent
	OpenRequests   int           // open requests of one connection with frames
}

// DefaultConfig returns the documented bounds.
func DefaultConfig() Config {
	return Config{
		Limits: ondemand.Limits{
			DefaultTimeout: 30 * time.Second, MaxTimeout: time.Hour, MaxBodies: 64 << 20,
			SharedRequests: 10_000, Keys: 20_000, KeepAnswers: 10 * time.Minute, KeepBytes: 64 << 20, EventsPerRequest: 256,
		},
		MaxPayload: 1_000_000, MaxUpload: 1 << 30, MaxConnections: 10_000, MaxHeader: 16 << 10,
		HeaderTimeout: 5 * time.Second, BodyTimeout: 30 * time.Second, WriteTimeout: 30 * time.Second,
		IdleTimeout: 2 * time.Minute, Heartbeat: 15 * time.Second, OpenRequests: 4096,
	}
}

// BodiesLimit is how many bytes the bodies of all callers may take together, without
// the bytes that the limit of connections bounds. It permits a body of the largest size.
func (c Config) BodiesLimit() int64 { return max(c.MaxBodies, int64(c.MaxPayload)) }

// limits returns the limits of package ondemand.
func (c Config) limits() ondemand.Limits {
	c.MaxBodies = c.BodiesLimit()
	return c.Limits
}

// Validate checks the only field that a flag sets. The other bounds are constants.
func (c Config) Validate() error {
	if c.MaxPayload < 1 {
		return fmt.Errorf("API limit %q is %d, must be at least 1", "max payload", c.MaxPayload)
	}
	return nil
}
