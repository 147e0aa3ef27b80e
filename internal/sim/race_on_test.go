//go:build race

package sim

// raced: the race detector has nothing to find where there are no goroutines,
// and slows worlds down tenfold.
const raced = true
