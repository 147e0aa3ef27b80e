package api

import (
	"fmt"
	"time"

	"github.com/dispatcherd/dispatcherd/internal/ondemand"
)

// Config bounds what callers can cost. Take DefaultConfig and change it.
type Config struct {
	ondemand.Limits

	MaxPayload int   // bytes of the body of a request or of one job
	MaxUpload  int64 // bytes of the body of a stream of jobs

	MaxConnections int           // open at once on each listener; beyond it idle ones make room
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

// BodiesLimit is how many bytes the bodies of all callers may take together, beyond
// what connections bound. One body of the largest size always has room.
func (c Config) BodiesLimit() int64 { return max(c.MaxBodies, int64(c.MaxPayload)) }

// limits returns the limits of package ondemand.
func (c Config) limits() ondemand.Limits {
	c.MaxBodies = c.BodiesLimit()
	return c.Limits
}

// Validate names the first value that cannot work.
func (c Config) Validate() error {
	for _, b := range []struct {
		name  string
		value int64
	}{
		{"max payload", int64(c.MaxPayload)}, {"max bodies", c.MaxBodies}, {"max upload", c.MaxUpload}, {"max connections", int64(c.MaxConnections)},
		{"max header", int64(c.MaxHeader)}, {"open requests", int64(c.OpenRequests)}, {"shared requests", int64(c.SharedRequests)}, {"keys", int64(c.Keys)}, {"kept bytes", c.KeepBytes}, {"events per request", int64(c.EventsPerRequest)},
	} {
		if b.value < 1 {
			return fmt.Errorf("API limit %q is %d, must be at least 1", b.name, b.value)
		}
	}
	for _, d := range []struct {
		name  string
		value time.Duration
	}{
		{"default timeout", c.DefaultTimeout}, {"header timeout", c.HeaderTimeout}, {"body timeout", c.BodyTimeout},
		{"write timeout", c.WriteTimeout}, {"idle timeout", c.IdleTimeout}, {"heartbeat", c.Heartbeat}, {"keep answers", c.KeepAnswers},
	} {
		if d.value < time.Millisecond {
			return fmt.Errorf("API %s is %v, must be at least 1ms", d.name, d.value)
		}
	}
	if c.MaxTimeout < c.DefaultTimeout {
		return fmt.Errorf("API max timeout is %v, must not be below the default timeout of %v", c.MaxTimeout, c.DefaultTimeout)
	}
	return nil
}
