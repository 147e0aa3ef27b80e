// Package flowstore sends the statements of daemons about batches, flows, and jobs with children.
// [API] has the HTTP calls of batches and flows, whose statements are in package joins.
//
// The table is the interface of users: they call the functions of migrations/schema/6_flows.sql.
//
// The statement that ends a job with a parent or dependants also writes messages to the table ends. [Store.Step] does a step of one target:
// it locks the row of batches, reads a bounded flow.View, calls flow.Step, and writes the flow.Change, all as JSON documents in two
// round trips. The rows that it may move are locked with SKIP LOCKED while they are read, so the decision knows which of them another
// transaction has locked. A statement that waits 50 ms for a lock, for example of a table or of a unique key, ends the step: the target
// is busy, and is tried again.
//
// [Service] has the background services: one does the steps, in turns, one searches for their targets, and one deletes and repairs batches
// and flows.
package flowstore
