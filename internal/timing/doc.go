// Package timing contains the notion of time that the deciding packages share:
// local monotonic instants, exponential backoff, and a circuit breaker. It is pure:
// callers pass the current instant and the random source.
package timing
