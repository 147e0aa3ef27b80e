//go:build !linux

package brief

import (
	"net"
	"time"
)

// Lookout does nothing.
type Lookout struct{}

// NewLookout returns nil.
func NewLookout(net.Conn, time.Duration, func() bool) *Lookout { return nil }

// Look does not look.
func (*Lookout) Look() (found bool, took time.Duration) { return false, 0 }
