// Package schedulestore contains the SQL of schedules. [Schedules] has the operations of users and
// operators and their HTTP calls, [Controller] those of the dispatcher that plans schedules. Both make ticks in a
// transaction that locks the schedule, reads facts, decides with [schedule.Decide] what becomes of an occasion, and writes the decision.
package schedulestore
