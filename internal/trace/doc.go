// Package trace reads, writes, generates and judges recorded workloads: jobs
// with their arrival and length of service, slots with their abilities, and
// the hours at which slots come online and leave.
//
// # Time
//
// A trace counts from its own start, in whole milliseconds. A replay may run
// Speed times faster than the trace; everything in this package speaks of the
// trace's own time, so a wait measured on a compressed clock is multiplied
// back before it arrives here.
//
// # The exact schedule
//
// What the rule of the article does with a trace is fixed to the millisecond
// and to the slot:
//
//  1. At one instant all drains, registrations, completions and arrivals are
//     applied before any decision.
//  2. Every waiting job is eligible whose type has a free registered slot; a
//     blocked type never blocks another.
//  3. The best score goes first; ties go to the earlier arrival, then to the
//     smaller job id.
//  4. The capacity in the score counts the registered slots that support the
//     type, free or busy. A draining slot no longer counts.
//  5. It takes the free compatible slot with the fewest types; ties go to the
//     smallest slot id.
//  6. A drained slot finishes its job and takes no more. A slot that
//     registers again before that job has ended counts at once and is free
//     when the job ends.
//
// [Naive] carries this out by scoring every waiting job against every slot;
// [Simulate] drives the real core through the same trace. [Auditor] watches a
// run of any kind and counts what must never happen. [Summarize] turns a run
// into tables.
//
// The format of the files is described in docs/traces.md.
package trace
