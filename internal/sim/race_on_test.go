//go:build race

package sim

// The simulation has no goroutines, and the race detector slows it down
// tenfold, so that tests run fewer events.
const raceDetector = true
