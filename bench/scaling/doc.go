// Command scaling draws how dispatcherd behaves as something grows.
//
//	go run ./scaling [-short] [-daemon FILE] [-against FILE] [-dispatchers N,N] backlog|slots|types|dispatchers|snapshot|cpu|all
//
// Each curve writes its figures to results/NAME.json and its picture to
// ../docs/bench/NAME.svg. Unless a curve says otherwise there are four worker
// processes with 250 slots each, jobs that do nothing, and a producer that
// keeps the backlog up by COPY on the same two cores; the sizes take turns. So the rates lie below
// those of a plain drain (command peers). Several dispatchers have no producer,
// see dispatchers.go.
package main
