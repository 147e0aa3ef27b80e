//go:build race

package actor

// raceEnabled shortens tests that run in a single goroutine, because the race
// detector finds nothing there.
const raceEnabled = true
