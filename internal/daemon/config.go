package daemon

import (
	"math/rand/v2"
	"net"
	"os"
	"time"

	"github.com/dispatcherd/dispatcherd/actor"
	"github.com/dispatcherd/dispatcherd/claim"
	"github.com/dispatcherd/dispatcherd/internal/httpapi"
	"github.com/dispatcherd/dispatcherd/internal/shell"
	"github.com/dispatcherd/dispatcherd/workerproto"
)

// Config contains the settings of a daemon. It is made from DefaultConfig, because zero values are settings, too.
type Config struct {
	Version     string        // of the program; part of the debug bundle
	Name        string        // for display; the host name by default
	KeyPatience time.Duration // how long others pass a job with keys that waits for several things
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
	// ConnectionRate is how many connections a user may open per second on a Unix socket, or from an address with TLS. A process that
	// connects and disconnects in a loop would otherwise take the processor time of the dispatcher and fill its log.
	ConnectionRate int
	Core           actor.Config
	CountPending   time.Duration // between two counts of the pending rows
	Workers        workerproto.Limits
	Keep           claim.Retention // how long final rows are kept
	KeepLogs       bool            // keep the ends of the logs of queued jobs in their rows, and stream the logs
	Lease          time.Duration   // how long a heartbeat is valid
	Heartbeat      time.Duration   // between two heartbeats
	Grace          time.Duration   // from the start of a stop until running jobs are released
	AsyncClaims    bool
	Memory         int            // soft limit in bytes; 0 = none
	Listen         bool           // use NOTIFY
	DecisionLog    int            // entries of the decision log; 0 = off
	Observe        actor.Observer // called after each step; may be nil
	Settings       []byte         // for the debug bundle; secrets are masked
	API            APIConfig
	Inherited      map[string]net.Listener // sockets that are already open, by address
	Supervisor     Supervisor
	Reload         <-chan os.Signal // each signal reloads tokens and certificates, within a second
}

// DefaultConfig returns the defaults of all settings. It names no database, and no socket.
func DefaultConfig() Config {
	const day = 24 * time.Hour
	c := Config{
		Core: actor.DefaultConfig(), Workers: workerproto.Limits{}.WithDefaults(),
		API:            APIConfig{Config: httpapi.DefaultConfig(), Connections: 6},
		ConnectionRate: 1000, KeyPatience: 30 * time.Second, CountPending: 5 * time.Second,
		Keep:  claim.Retention{Done: 7 * day, Failed: 30 * day},
		Lease: claim.DefaultLease, Heartbeat: shell.Interval(claim.DefaultLease), Grace: 30 * time.Second,
		Memory: 120 << 20, // with it, the process needs less than 150 MB, including the pages of the program
		Listen: true, DecisionLog: 1 << 16,
	}
	c.Workers.Resume = 30 * time.Second
	return c
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
