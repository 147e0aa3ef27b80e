// Package cron computes the occasions of cron expressions in a time zone. It is pure.
//
// An expression has five fields (minute, hour, day, month, weekday) or six
// (seconds first). If both the day of month and the weekday are restricted, a day that
// matches either of them matches. A field with * is not restricted, not even with a step.
//
// The wall clock of a time zone skips times (a gap) and repeats times. Two rules apply:
//
//  1. An hour field with *, also with a step, follows elapsed time: both repeated
//     hours run, and a skipped hour does not.
//  2. All other times run once. A time in a gap of at most 3 h runs at the end of the
//     gap; several such times are one run. A repeated time runs the first time.
//
// A time zone is a sequence of periods with constant offset. In each period, Next
// searches the wall-clock times of that period, without regard to the zone. For rule 2
// it starts at the latest time that the wall clock showed before.
package cron
