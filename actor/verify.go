//go:build !race

package actor

func (a *Actor) verify() {}
