// Package scoring computes the score that orders jobs (article 1, "job
// score"): a weighted sum of business priority, age, rarity of the type and,
// for on-demand requests, a bonus that grows with the wait up to a cap.
//
//	score = 1024·priority + 16·age_s + 500/capacity + [on-demand] (4096 + 32·min(age_s, cap))
//
// All arithmetic uses integers: weights are whole points, ages are whole
// milliseconds, sums are thousandths of a point. Points per second are therefore
// thousandths of a point per millisecond. Nothing is rounded, and two machines
// always agree on an order.
//
// The package knows no clock, no slot and no queue: callers say how old a job
// is and how many slots could run it.
//
// # Who goes first
//
// The job with the higher total is first. If totals are equal, the job that arrived
// earlier is first, then the job with the smaller id. Validation limits the
// weights. So no sum can overflow for jobs up to MaxAge old, and the wait of every
// job is bounded, see [Weights.Window].
package scoring
