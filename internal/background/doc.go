// Package background runs the services of the daemon: work that does not belong to one job, such as making the ticks of schedules,
// admitting jobs with keys, or counting pending rows.
//
// A [Service] has a function Step, which does what is due in bounded portions and returns for how long nothing is to be done. A new
// service is one value in the list in package daemon. The [Runner] owns everything that services have in common: the goroutine, the
// timer, the pause after a failure, the role, logs and metrics. The rules are in [Turn], which is pure, so that the simulator
// uses the same ones in simulated time.
//
// # When a step begins
//
//   - after the wait that the last step returned;
//   - when a topic of the service arrives, but not before Service.Rest after the end of the last step, because any session of Postgres
//     may send notifications;
//   - at once after a heartbeat that found that the database clock was set, because occasions have moved.
//
// Topics and movements of the clock are merged until the next step begins, so no number of notifications causes more than one step.
//
// # Lost notifications
//
// Notifications have one channel, and the first word of a payload is the topic; see package claim. What must be handled is a row, which its
// reader deletes in the transaction that handles it. A heartbeat reads for which topics such rows are left, and the services of these
// topics do a step. So a lost notification costs at most one interval of heartbeats. Jobs have their own rule: the scan.
//
// # Failures
//
// After an error the pause is between half and all of 0.5 s, 1 s, 2 s, 4 s, and 8 s for each further error. Topics do not shorten it.
// The first heartbeat after an outage of Postgres does. What a failed step was told is told to the next one again. The
// observer hears of the first failure of a series and of its end.
//
// # The role
//
// A service with Controller runs only on the dispatcher that the table controller names. A heartbeat says which one that is. After a
// change of the term the context of the step in progress is cancelled, the step returns, Reset drops the state of the old term, and
// the next step belongs to the new term. An error of a step whose term has ended is no failure.
//
// # Heartbeats
//
// Heartbeats are no service. They prove the lease and tell the services the role and the clock, so they must go on while a service hangs.
package background
