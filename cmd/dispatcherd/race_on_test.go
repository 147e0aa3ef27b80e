//go:build race

package main

// raceFactor is how much more memory a process takes with the race detector.
const raceFactor = 4
