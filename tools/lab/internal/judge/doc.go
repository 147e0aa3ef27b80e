// Package judge checks whether a history fulfils the guarantees of dispatcherd
// (docs/explanation/reliability.md). The judge does not depend on how the dispatcher works. It trusts
// no single log: each check of a guarantee compares two of them.
//
//	lost         committed by a producer, but not in a final table in the end
//	unexpected   a row or execution that no producer committed, or only a part of a batch; two rows
//	             of one job; another final status than the payload demands; another job's result
//	stale        ended by an attempt that was not the current one: the row or one of its errors contains
//	             the report of another attempt, an earlier attempt than the last one claimed ended it,
//	             or no worker had ended the last attempt
//	affinity     executed on a slot that had not offered the type
//	overlaps     two executions on one slot at the same time
//	illegal      a transition that is not allowed: a claim of a running row, an end of a row that does not
//	             run, a claim by a dispatcher that was already declared lost
//	disorder     the three logs of a job have no valid order (Porcupine)
//
//	key over     jobs that ran at once cost more than the capacity of a key, or one that needs all of it was not alone
//	key order    a job got its permits before an earlier one of the same keys, type and priority
//
//	joined early a batch or flow node proceeded before a job for which it waited had ended, or against its rule
//	joined lost  it never did ([Report.Joins] checks these four by the rows of Postgres alone)
//	joined twice it did so twice, or counted ends not exactly once
//	orphan       a child started more than 10 s, or ended more than 30 s, after the end of its parent
//
//	stuck        it waited, due, for longer than a bound while a slot of its type was idle ([Report.FindStuck])
//
//	dishonest    a caller got a wrong answer: a result that no worker reported, a timeout before the deadline,
//	             a 503 or 429 without Retry-After; or a living dispatcher did not answer
//
// Executions of one job at the same time (Twice), and executions that started after the
// end of their attempt (Late), are only counted: after a dispatcher or worker was
// declared lost, its executions may continue for a while. The trial knows how many
// dispatchers and workers were declared lost, and bounds the counts. Such executions
// cannot end the job. The checks stale and illegal verify this.
package judge
