//go:build race

package workerproto

// raceEnabled reports whether the race detector is on, which changes memory sizes.
const raceEnabled = true
