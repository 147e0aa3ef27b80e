//go:build race

package actor

// raceEnabled shortens the tests that only one goroutine runs anyway.
const raceEnabled = true
