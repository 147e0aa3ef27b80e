// Package cronlibs compares cron libraries with package internal/schedule/cron. Its test prints,
// for each library, the number of cases in which its occasions differ from the rules of
// docs/schedules.md, and the rows of the table in that document.
package cronlibs
