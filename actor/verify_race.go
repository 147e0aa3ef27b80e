//go:build race

package actor

// verify checks the invariants of the core after each step of a race build.
func verify(c *Core) {
	if c.Len() > 256 {
		return // for a large dispatcher, a full check after every step would take most of the time
	}
	if err := c.Check(); err != nil {
		panic("actor: broken invariant: " + err.Error())
	}
}
