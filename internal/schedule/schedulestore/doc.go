// Package schedulestore contains the SQL of schedules. [Schedules] has the operations of users and
// operators and their HTTP calls, [Controller] those of the dispatcher that plans schedules. Both make ticks with the
// SQL function make_ticks, which decides under a lock of the schedule what becomes of an occasion.
package schedulestore
