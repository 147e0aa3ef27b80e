// Package scoring computes the score that orders jobs (article 1, "job
// score"): a weighted sum of business priority, age, rarity of the type and,
// for on-demand requests, a bonus that grows with the wait up to a cap.
//
//	score = 1024·priority + 16·age_s + 500/capacity + [on-demand] (4096 + 32·min(age_s, cap))
//
// Everything is integer arithmetic: weights are whole points, ages whole
// milliseconds, sums thousandths of a point. Points per second are therefore
// thousandths per millisecond, with nothing to round, and two machines always
// agree on an order.
//
// The package knows no clock, no slot and no queue: callers say how old a job
// is and how many slots could run it.
//
// # Who goes first
//
// The higher total goes first; on a tie the job that arrived earlier; then
// the smaller id. Weights are validated so that no sum can overflow for jobs
// up to MaxAge old, and so that the wait of every job is bounded, see
// [Weights.Window].
package scoring
