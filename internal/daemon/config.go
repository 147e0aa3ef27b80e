package daemon

import (
	"math/rand/v2"
	"net"
	"os"
	"time"

	"github.com/dispatcherd/dispatcherd/actor"
	"github.com/dispatcherd/dispatcherd/claim"
	"github.com/dispatcherd/dispatcherd/workerproto"
)

// Defaults of Config.
const (
	DefaultLease  = claim.DefaultLease
	DefaultGrace  = 30 * time.Second
	DefaultResume = 30 * time.Second
	// DefaultKeyPatience is the default of Config.KeyPatience.
	DefaultKeyPatience = 30 * time.Second

	DefaultKeepDone   = 7 * 24 * time.Hour
	DefaultKeepFailed = 30 * 24 * time.Hour
)

// Config contains the settings of a daemon.
type Config struct {
	Version     string        // of the program; part of the debug bundle
	Name        string        // for display; the host name by default
	KeyPatience time.Duration // how long others pass a job with keys that waits for several things; 0 = DefaultKeyPatience
	AppVersion  string        // of the application, for startup schedules; empty = unknown
	// ScheduleResync is the time between two comparisons of the plan of schedules with the table; 0 = 12 h.
	ScheduleResync time.Duration
	DSN            string
	WorkerSocket   string
	WorkerListen   string   // TCP address for workers; "" = Unix socket only
	TLS            TLSFiles // of the listeners on TCP
	APISocket      string
	WorkerAccess   workerproto.Access // which users may open WorkerSocket
	APIAccess      workerproto.Access // which users may open APISocket
	Allow          AllowList          // which users may serve which types
	AllowAPI       AllowList          // which users may use jobs of which types over APISocket
	// ConnectionRate is how many connections a user may open per second on each of the
	// two sockets. 0 = DefaultConnectionRate.
	ConnectionRate int
	Core           actor.Config
	CountPending   time.Duration // between two counts of the pending rows; 0 = backend.CountInterval
	Workers        workerproto.Limits
	Keep           claim.Retention // how long final rows are kept
	KeepLogs       bool            // keep the ends of the logs of queued jobs in their rows, and stream the logs
	Lease          time.Duration   // how long a heartbeat is valid
	Heartbeat      time.Duration   // between two heartbeats
	Grace          time.Duration   // from the start of a stop until running jobs are released
	AsyncClaims    bool
	Memory         int                     // soft limit in bytes; 0 = none
	Listen         bool                    // use NOTIFY
	DecisionLog    int                     // entries of the decision log; 0 = off
	Observe        actor.Observer          // called after each step; may be nil
	Settings       []byte                  // for the debug bundle; secrets are masked
	API            APIConfig               // the zero value means the defaults
	Inherited      map[string]net.Listener // sockets that are already open, by address
	Supervisor     Supervisor
	Reload         <-chan os.Signal // each signal reloads tokens and certificates, within a second
}

// remoteHold is how long the jobs of remote workers must wait before they run elsewhere; 0 = there are none.
func (c *Config) remoteHold() time.Duration {
	if c.WorkerListen == "" {
		return 0
	}
	return c.Workers.RemoteResume
}

// NewSeed returns a random seed for tokens and jitter.
func NewSeed() [2]uint64 { return [2]uint64{rand.Uint64(), rand.Uint64()} }

// shareDirectory makes the directory of both sockets open to the group of either.
func (c *Config) shareDirectory() {
	shared := c.WorkerAccess.Group != "" || c.APIAccess.Group != ""
	c.WorkerAccess.Shared, c.APIAccess.Shared = shared, shared
}
