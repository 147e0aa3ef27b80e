//go:build race

package workerproto

// raceEnabled tells tests that memory is not what it costs elsewhere.
const raceEnabled = true
