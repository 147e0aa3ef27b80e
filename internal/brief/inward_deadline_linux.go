package brief

import (
	"errors"
	"time"
)

// SetDeadline implements net.Conn.
func (c *inward) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

// SetReadDeadline implements net.Conn.
func (c *inward) SetReadDeadline(t time.Time) error {
	return c.reason("set", c.in.set.SetReadDeadline(t))
}

// SetWriteDeadline implements net.Conn. Who writes waits until there is something in
// the set for writing.
func (c *inward) SetWriteDeadline(t time.Time) error {
	return c.reason("set", c.out.set.SetReadDeadline(t))
}
