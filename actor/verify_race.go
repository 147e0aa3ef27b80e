//go:build race

package actor

// verify holds every step of a race build to the core's invariants.
func (a *Actor) verify() {
	if a.core.Len() > 256 {
		return // a full check of a large dispatcher would be all that it does
	}
	if err := a.core.Check(); err != nil {
		panic("actor: broken invariant: " + err.Error())
	}
}
