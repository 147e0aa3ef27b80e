//go:build race

package sim

// raceDetector: the race detector has nothing to find where there are no goroutines,
// and slows worlds down tenfold.
const raceDetector = true
