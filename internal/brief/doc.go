// Package brief reads and writes connections behind the back of Go's scheduler.
//
// A system call is announced to the scheduler, since it may last. If the program
// was idle, the announcement wakes the runtime's monitor, a thread that takes the
// processor away from whoever keeps it for too long: a futex call before the call
// proper, and a thread that sleeps for 20 µs, sees that all is idle, and goes back
// to sleep, on the processor that the program at the other end needs just then.
// A read or write that never waits need not be announced.
//
// Nor is the other end woken for nothing. Whoever takes bytes out of a Unix socket
// makes room for the one who wrote them, and the kernel tells him so: Go's poller
// wants to hear of that, too. So a program that has asked and fell asleep is woken
// by the very read of its question, and to wake an idle processor keeps the reader
// for 10 µs before he can do anything about it. A small read therefore leaves the
// bytes in the kernel (MSG_PEEK), and the next one looks at what is behind them
// (SO_PEEK_OFF). Several requests are taken out at once, which wakes the other end
// once for all of them, and what is left is taken out after some milliseconds in any
// case: nobody is short of room for longer.
//
// Who may choose how his own end is watched has it simpler (Inward): a poller that
// asks only for what comes is not told of room at all, whatever the other end does.
// That takes two more descriptors a connection.
//
// To be woken costs even more than to be woken for nothing: an idle processor takes
// some 5 µs until it runs again, longer on a virtual machine, and is slow at first. Who
// expects something in a moment may stay awake for it (Lookout).
//
// The price: until something else wakes the monitor, at the latest the program's
// next timer, nobody interrupts a goroutine that computes on and on. So this is for
// a program that has timers, and does little between a read and a write. Where others'
// code computes Inward sets the timer itself (see watch).
package brief
