// Package brief reads and writes connections behind the back of Go's scheduler.
//
// A system call is announced to the scheduler, since it may last. If the program
// was idle, the announcement wakes the runtime's monitor, a thread that takes the
// processor away from whoever keeps it for too long: a futex call before the call
// proper, and a thread that sleeps for 20 µs, sees that all is idle, and goes back
// to sleep, on the processor that the program at the other end needs just then.
// A read or write that never waits need not be announced.
//
// The price: until something else wakes the monitor, at the latest the program's
// next timer, nobody interrupts a goroutine that computes on and on. So this is for
// a program that has timers, and does little between a read and a write.
package brief
