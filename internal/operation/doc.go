// Package operation does what operators want by rows of the table operations: cancel and retry jobs, batches and flows, and repair the
// counters of batches and flows.
//
// The service of the controller handles the rows in the order of their ids, and deletes each row in the transaction that handles it. So
// an operation is done once, also if the controller changes meanwhile. Operations of one kind and caller share a transaction. If Postgres
// refuses it, each of them is done alone, and one that is refused alone is deleted and reported. If the transaction meets a locked row or
// takes too long, only the operation that is the cause waits, and the later ones with the same target: operations with one target are done
// in their order, as long as none of them meets a row that a claim or another transaction changes at the same time. The service goes on
// behind those that wait, and tries them again when it has come to the end.
//
// A request to cancel a running job is no work for the controller. The dispatcher that runs the job reads it, after a notification or
// with a heartbeat. If the job becomes pending again before its attempt has ended, the controller cancels it.
//
// The API calls the same functions of packages claim and joins at once, because its callers wait for the result.
package operation
