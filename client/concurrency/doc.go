// Package concurrency coordinates the goroutines of one process, for example those that wait for the requests of package
// client.
//
// [MapLimit] runs a function over many items with a limit on concurrent calls, and ends with the first error. [FanOut] does
// the same and returns all errors. [Group] runs different functions. [Semaphore], [RWLock] and [Barrier] limit, exclude and
// synchronise goroutines. Articles 4 and 5 define their behaviour.
package concurrency
