//go:build !linux

package brief

import (
	"net"
	"time"
)

// Lookout does nothing.
type Lookout struct{}

// Habit is how a Lookout looks where there is one.
type Habit struct {
	Most   time.Duration
	Alone  func() bool
	Yields int
	Rest   time.Duration
	Told   func(found bool, took time.Duration)
}

// NewLookout returns nil.
func NewLookout(net.Conn, Habit) *Lookout { return nil }

// Due reports that no look is.
func (*Lookout) Due() bool { return false }

// Arm does nothing.
func (*Lookout) Arm() {}
