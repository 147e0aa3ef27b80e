// Package flow decides what follows when members of batches, nodes of flows and children of jobs end. It knows neither SQL nor a clock.
//
// A target is the id of a row of the table batches, or of a job on which nodes of other flows depend. The statements that end jobs, or
// run ended ones again, write messages: rows of the table ends, each addressed to one target. A step is one transaction about one target.
// It locks the target, reads a bounded [View], calls [Step], writes the [Change] and commits. What a step leaves over is again a row of
// ends. So all state is in rows, and any dispatcher continues after a crash.
//
// A message about a job is a transition of its record from one status to another: the final status of a node is recorded in its row of
// nodes, that of a dependency outside the flow in its row of edges, and that of a failed or cancelled member in bad_members. A job that
// runs again has the status pending. The messages about one job arrive in the order in which they were written.
//
// Invariants:
//   - A message counts once. One that says what is recorded already, or a second end, changes nothing.
//   - Node.Open is the number of dependencies without a final record, Node.Bad that of those that failed or were cancelled, and Node.Inputs
//     the bytes of their results, for each node that is not ready, whenever no walk is under way.
//   - A node is released or ended only when Node.Open is 0, and once until it is retried. The callback is released or ended only when the
//     target is sealed and Open is 0.
//   - No counter is computed from rows that retention deletes.
//   - A step does no more than its limits allow, except that it always counts one job or dependant, and moves one row. Whatever
//     the limits are, a step links up to 50 jobs outside a flow, and the last step of a repair counts up to 100,000 members.
//   - How messages are divided among steps does not change the result.
package flow
