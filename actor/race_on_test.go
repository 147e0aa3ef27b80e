//go:build race

package actor

// raceEnabled shortens tests that run in a single goroutine, where the race
// detector cannot find anything.
const raceEnabled = true
