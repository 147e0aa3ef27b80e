// Package trace reads, writes, generates and judges recorded workloads: jobs
// with their arrivals and durations, slots with their types, and the times at
// which slots go online and offline.
//
// # Time
//
// The times of a trace are whole milliseconds since its start. A replay may
// be faster than the trace. This package uses only the trace's own time, so
// the replay converts the times that it has measured.
//
// # The exact schedule
//
// The rules of article 1 determine the start of each job to the millisecond,
// and its slot:
//
//  1. At one instant all drains, registrations, completions and arrivals are
//     applied before any decision.
//  2. A waiting job is eligible if a free registered slot supports its type.
//     So a type without a free slot never blocks another type.
//  3. The job with the highest score goes first; among equals, the job with
//     the earlier arrival, then the job with the smaller id.
//  4. The capacity in the score counts the registered slots that support the
//     type, free or busy. A draining slot no longer counts.
//  5. The job gets the free compatible slot with the fewest types; among
//     equals, the slot with the smallest id.
//  6. A drained slot finishes its job and takes no more jobs. If the slot
//     registers again before this job has ended, it counts as capacity at
//     once and is free when the job ends.
//
// [Naive] implements these rules by brute force. [Simulate] runs a trace
// through the real core. [Auditor] checks the facts of a run. [Watch] checks
// a live core. [Summarize] turns a run into tables.
//
// The format of the files is described in docs/how-to/traces.md.
package trace
