// Package scoring computes the score that orders jobs (article 1, "job
// score"): a weighted sum of business priority, age, rarity of the type and,
// for on-demand requests, a bonus that grows with the wait up to a cap.
//
//	score = 1024·priority + 16·age_s + 500/capacity + [on-demand] (4096 + 32·min(age_s, cap))
//
// All arithmetic uses integers: weights are whole points, ages are whole
// milliseconds, sums are thousandths of a point. Points per second are therefore
// thousandths of a point per millisecond. Only the rarity is rounded, down to
// whole points. So two machines always agree on an order.
//
// The package has no clock, no slots and no queue. Callers say how old a job is
// and how many slots could run it.
//
// # Order
//
// The job with the higher total is first. If totals are equal, the job that
// arrived earlier is first. If arrivals are equal, too, the job with the smaller
// id is first.
//
// [Weights.Validate] limits the weights so that no sum can overflow.
// [Weights.Window] states how long other jobs can overtake a waiting job.
package scoring
