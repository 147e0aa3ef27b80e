// Command peers runs dispatcherd and the queues that people would choose
// instead side by side: the same Postgres with the same settings, the same
// number of jobs that do nothing, in turn, several rounds.
//
//	go run ./peers [-short] [-o table|json] [-jobs N] [-rounds N] [-only a,b] [-daemon FILE]
//
// What is measured is a drain: the rows are inserted and analysed before, and
// the time goes from the start of the first job to the moment at which the end
// of the last one is in Postgres. The order changes from round to round, every
// run gets a fresh database, and medians are reported with their extremes.
//
// The last line is for machines (with -o json on the standard error):
//
//	peers: dispatcherd=… graphile=… river=… pgboss=… floor=… ratio_graphile=… ratio_river=… ratio_floor=…
//
// in jobs a second; river is the tuned one.
//
// With -distance the contestants reach Postgres through a proxy that delays
// every byte, at each of the round-trip times given, and one line for each says
// how dispatcherd compares with its own rate at the first and with the fastest
// competitor.
package main
