//go:build race

package actor

// verify holds every step of a race build to the core's invariants.
func verify(c *Core) {
	if c.Len() > 256 {
		return // a full check of a large dispatcher would be all that it does
	}
	if err := c.Check(); err != nil {
		panic("actor: broken invariant: " + err.Error())
	}
}
