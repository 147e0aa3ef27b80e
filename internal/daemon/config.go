package daemon

import (
	"crypto/rand"
	"encoding/binary"
	"net"
	"os"
	"time"

	"github.com/dispatcherd/dispatcherd/actor"
	"github.com/dispatcherd/dispatcherd/claim"
	"github.com/dispatcherd/dispatcherd/internal/allow"
	"github.com/dispatcherd/dispatcherd/workerproto"
)

// Defaults of Config.
const (
	DefaultLease  = 10 * time.Second
	DefaultGrace  = 30 * time.Second
	DefaultResume = 30 * time.Second

	DefaultKeepDone   = 7 * 24 * time.Hour
	DefaultKeepFailed = 30 * 24 * time.Hour
)

// Config is what serve and dev make of their flags.
type Config struct {
	Version      string // of the program, as a bundle tells it
	Name         string // shown to people; the host's by default
	DSN          string
	WorkerSocket string
	APISocket    string
	SocketMode   os.FileMode
	Allow        allow.List // who may serve which type
	Core         actor.Config
	Workers      workerproto.Limits
	Keep         claim.Retention // how long final rows are kept
	Lease        time.Duration   // how long the dispatcher counts as alive after a heartbeat
	Heartbeat    time.Duration   // between two heartbeats
	Grace        time.Duration   // from the request to stop until running jobs are taken back
	AsyncClaims  bool
	Memory       int                     // soft limit in bytes; 0 = leave it alone
	Listen       bool                    // use NOTIFY
	DecisionLog  int                     // entries of the decision log; 0 = off
	Observe      actor.Observer          // sees every step; may be nil
	Settings     []byte                  // what the bundle says of them, secrets masked
	API          APIConfig               // the zero value stands for the defaults
	Inherited    map[string]net.Listener // sockets of the service manager, by address
	Supervisor   Supervisor
	Reload       <-chan os.Signal // read the tokens anew
}

// NewSeed is fresh randomness for tokens and jitter.
func NewSeed() (seed [2]uint64) {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails, as documented
	seed[0], seed[1] = binary.LittleEndian.Uint64(b[:8]), binary.LittleEndian.Uint64(b[8:])
	return seed
}
