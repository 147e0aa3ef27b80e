//go:build race

package e2e

// raceFactor is how much more memory a process takes with the race detector.
const raceFactor = 4

// buildFlags build the program as the tests were built.
var buildFlags = []string{"-race"}
