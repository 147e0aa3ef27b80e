// Package judge decides whether a history could be that of a system that
// keeps its word. It knows nothing of how the dispatcher works, only what it
// promises (docs/reliability.md), and it believes no single log: each promise
// is checked by holding two of them against each other.
//
//	lost         committed by a producer, not in a final table when all is quiet
//	unexpected   there or executed, and no producer committed it (or only a part of a batch is there);
//	             there twice; another end than its work wants; another job's result
//	stale        ended by an attempt that was not the live one: the row or one of its errors carries an
//	             attempt's word under another attempt's number, an earlier attempt than the last one handed out
//	             ended it, or no worker had ended the attempt that counts
//	affinity     executed on a slot that had not offered the type
//	overlaps     two executions on one slot at a time
//	illegal      a transition that no rule allows: a claim of a row that runs, an end of one that does not,
//	             a claim by a dispatcher that was declared lost before
//	disorder     what all three logs say of a job has no order in which it makes sense (Porcupine)
//
//	stuck        it waited, due, for longer than a bound while a slot of its type idled all that time ([Report.FindStuck])
//
//	dishonest    a caller was told what is not so: a result that no worker made, a deadline that had not passed,
//	             "not now" without saying when; or he was left without an answer by a dispatcher that was there
//
// Executions of one job at the same time (Twice), and those that began when
// their attempt was over already (Late), are counted here: one whose dispatcher
// or worker was declared lost may go on for a while. The trial
// knows how many were declared lost, and bounds them. That they cannot end the job is
// what stale and illegal are about.
package judge
