// Command scaling measures dispatcherd while one quantity grows, and draws
// the curves.
//
//	go run ./scaling [-short] [-minutes N] backlog|slots|types|dispatchers|snapshot|all
//
// Each curve prints its figures and writes its picture to docs/explanation/bench/NAME.svg of the
// checkout. Unless a curve says otherwise, there are four worker processes
// with 250 slots each, and the jobs do nothing. A producer keeps the backlog constant by
// COPY on the same two cores. So the rates are lower than those of a drain without a
// producer (command peers). In each round the sizes of a curve are measured in turn. Runs
// with several dispatchers have no producer; see dispatchers.go.
package main
