//go:build race

package actor

// verify checks the core's invariants after each step of a race build.
func verify(c *Core) {
	if c.Len() > 256 {
		return // a full check after every step would take most of the time of a large dispatcher
	}
	if err := c.Check(); err != nil {
		panic("actor: broken invariant: " + err.Error())
	}
}
