// Package flowstore sends the statements of daemons about batches, flows, and jobs with children.
// [API] has the HTTP calls of batches and flows, whose statements are in package joins.
//
// The table is the interface of users: they call the functions of migrations/schema/6_flows.sql and 7_settlement.sql.
//
// The statement that ends a job with a parent or dependants also records the end in the table ends. A
// settlement deletes these records, counts them in batches and nodes, and releases or cancels the jobs that
// have waited for them. It is a transaction of its own, so no finish waits for the row of a batch. Any
// dispatcher may send it at any time. A row of batches is the lock of all that is counted there. A settlement
// skips batches that others have locked, and leaves their ends for later.
package flowstore
