package claimfake

import (
	"crypto/rand"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/claim"
	"github.com/dispatcherd/dispatcherd/internal/contract"
)

// Config is the configuration of a claim.Store in tests of other packages.
func Config(dsn, name string) claim.Config {
	c := claim.Config{
		DSN: dsn, Name: name, Timeout: claim.DefaultTimeout, Lease: claim.DefaultLease, Claims: 1, Finishes: 1, Spawns: 1,
		Observer: ignored{},
	}
	_, _ = rand.Read(c.Identity.Incarnation[:]) // never fails
	return c
}

// ignored is an observer that ignores all reports.
type ignored struct{}

func (ignored) Statement(claim.Report)                     {}
func (ignored) Refused(claim.Operation, dispatcherd.JobID) {}
func (ignored) Unreadable(contract.Lane, error)            {}
func (ignored) Listening(bool, error)                      {}
func (ignored) Queue(float64)                              {}
