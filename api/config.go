package api

import (
	"fmt"
	"time"

	"github.com/dispatcherd/dispatcherd/internal/ondemand"
)

// Config bounds what callers can cost. Take DefaultConfig and change it.
type Config struct {
	MaxPayload     int           // bytes of the body of a request or of one job
	MaxBodies      int64         // bytes of the bodies of all requests and single jobs that are held; one of MaxPayload always may
	MaxUpload      int64         // bytes of the body of a stream of jobs
	DefaultTimeout time.Duration // of a request that names none
	MaxTimeout     time.Duration // longest that a request may ask for

	MaxConnections int           // open at once on each listener; beyond it idle ones make room
	MaxHeader      int           // bytes of the headers of a request
	HeaderTimeout  time.Duration // from the first byte, or the connect, to the end of the headers
	BodyTimeout    time.Duration // for a body, and for each silence within a stream of jobs
	WriteTimeout   time.Duration // for a response, from its first byte, and for each event of a stream
	IdleTimeout    time.Duration // between two requests of a connection
	Heartbeat      time.Duration // silence on an event stream after which a comment is sent

	OpenRequests     int           // open requests of one connection with frames
	SharedRequests   int           // shared requests in memory, current and kept
	Keys             int           // Idempotency-Keys of all shared requests
	KeepAnswers      time.Duration // how long the answer of a shared request is kept
	KeepBytes        int64         // bytes of events and answers of all shared requests
	EventsPerRequest int           // events that one shared request holds; the oldest make room
}

// DefaultConfig returns the documented bounds.
func DefaultConfig() Config {
	return Config{
		MaxPayload: 1_000_000, MaxBodies: 64 << 20, MaxUpload: 1 << 30,
		DefaultTimeout: 30 * time.Second, MaxTimeout: time.Hour,
		MaxConnections: 10_000, MaxHeader: 16 << 10,
		HeaderTimeout: 5 * time.Second, BodyTimeout: 30 * time.Second, WriteTimeout: 30 * time.Second,
		IdleTimeout: 2 * time.Minute, Heartbeat: 15 * time.Second,
		OpenRequests: 4096, SharedRequests: 10_000, Keys: 20_000, KeepAnswers: 10 * time.Minute, KeepBytes: 64 << 20, EventsPerRequest: 256,
	}
}

// BodiesLimit is how many bytes the bodies of all callers may take together, beyond
// what connections bound. One body of the largest size always has room.
func (c Config) BodiesLimit() int64 { return max(c.MaxBodies, int64(c.MaxPayload)) }

// requests is the part of the limits that package ondemand keeps.
func (c Config) requests() ondemand.Limits {
	return ondemand.Limits{
		DefaultTimeout: c.DefaultTimeout, MaxTimeout: c.MaxTimeout, Bodies: c.BodiesLimit(),
		Requests: c.SharedRequests, Keys: c.Keys, KeepAnswers: c.KeepAnswers, KeepBytes: c.KeepBytes, Events: c.EventsPerRequest,
	}
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
