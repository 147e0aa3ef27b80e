package claim

import (
	"crypto/rand"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
)

// WithDefaults replaces zero values by those of tests.
func (c Config) WithDefaults() Config {
	if c.Identity.Incarnation == (Incarnation{}) {
		_, _ = rand.Read(c.Identity.Incarnation[:]) // never fails
	}
	if c.Timeout <= 0 {
		c.Timeout = DefaultTimeout
	}
	if c.Lease <= 0 {
		c.Lease = DefaultLease
	}
	c.Claims, c.Finishes, c.Spawns = max(c.Claims, 1), max(c.Finishes, 1), max(c.Spawns, 1)
	if c.Observer == nil {
		c.Observer = silentObserver{}
	}
	if c.Name == "" {
		c.Name = "dispatcherd"
	}
	return c
}

// silentObserver ignores all reports.
type silentObserver struct{}

func (silentObserver) Statement(Report)                     {}
func (silentObserver) Refused(Operation, dispatcherd.JobID) {}
func (silentObserver) Unreadable(contract.Lane, error)      {}
func (silentObserver) Listening(bool, error)                {}
func (silentObserver) Queue(float64)                        {}
