package httpapi

import (
	"time"

	"github.com/dispatcherd/dispatcherd/internal/ondemand"
	"github.com/dispatcherd/dispatcherd/internal/quota"
)

// Config bounds the resources that callers use. Take DefaultConfig and change it.
type Config struct {
	ondemand.Limits

	Dispatcher string // name in the welcome of callers; "" = the default of package workerproto

	MaxPayload int   // bytes of the body of a request or of one job
	MaxUpload  int64 // bytes of the body of a stream of jobs

	MaxConnections int           // open at the same time on each listener; above it the longest idle one is closed
	MaxHeader      int           // bytes of the headers of a request
	HeaderTimeout  time.Duration // from the connect, or the first byte of a later request, to the end of the headers
	BodyTimeout    time.Duration // for a whole body; in a stream of jobs, for each silence
	WriteTimeout   time.Duration // for a response from its first byte; in an event stream, for each write
	IdleTimeout    time.Duration // between two requests of a connection
	Heartbeat      time.Duration // silence on an event stream after which a comment is sent
	OpenRequests   int           // open requests of one connection with frames
}

// DefaultConfig returns the documented bounds.
func DefaultConfig() Config {
	return Config{
		Limits: ondemand.Limits{
			DefaultTimeout: 30 * time.Second, MaxTimeout: time.Hour, MaxBodies: 128 << 20,
			SharedRequests: 10_000, Keys: 20_000, KeepAnswers: 10 * time.Minute, KeepBytes: 64 << 20, EventsPerRequest: 256,
		},
		MaxPayload: 1_000_000, MaxUpload: 1 << 30, MaxConnections: 10_000, MaxHeader: 16 << 10,
		HeaderTimeout: 5 * time.Second, BodyTimeout: 30 * time.Second, WriteTimeout: 30 * time.Second,
		IdleTimeout: 2 * time.Minute, Heartbeat: 15 * time.Second, OpenRequests: 4096,
	}
}

// BodiesLimit returns how many bytes the bodies of all callers may have together, and the responses and frames that callers have not
// read yet. The first bytes of each do not count, because the limit of connections bounds them. The limit
// is never smaller than what the only user needs for the largest permitted body.
func (c Config) BodiesLimit() int64 { return max(c.MaxBodies, int64(quota.For(c.MaxPayload))) }
