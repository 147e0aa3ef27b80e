// Package schedule plans the ticks of schedules and decides what becomes of them. It is pure: the caller supplies the time,
// which is that of the database clock, and executes what the plan returns.
//
// The caller adds schedules with Set, waits until Next, gets ticks and checks from Due, sends
// them to the database, and reports the answers with Made and Checked. Until then Due returns
// the same again, so a failed statement needs no special treatment.
//
// A cron schedule has a high-water mark: all occasions up to it are handled. Due looks at the
// occasions after the mark. Those of the last 5 s run. Of the others that are younger than
// catch_up, the newest catch_up_most run. The remaining ones become one missed tick.
//
// An interval alternates between a check, which reads the end of the last run, and a tick. The
// plan checks an open run once per interval. That is early enough, because the next run is due
// a whole interval after the end.
//
// Decide says what becomes of a tick while earlier runs have not ended. It depends on facts that are read under the lock of the schedule.
package schedule
