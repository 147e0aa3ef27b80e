// Command peers compares dispatcherd with the queues that people would choose instead.
// All queues use the same Postgres with the same settings, and execute the same number of
// jobs that do nothing. In each of several rounds every queue runs once.
//
//	go run ./peers [-short] [-o table|json] [-jobs N] [-rounds N] [-only a,b]
//
// A run is a drain. The rows are inserted and analysed before the run. The
// measured time begins with the start of the first job, and ends when the end
// of the last job is in Postgres. The order changes from round to round, and
// every run gets a new database. The report contains medians and extremes.
//
// The last line is for programs (with -o json on the standard error):
//
//	peers: dispatcherd=… graphile=… river=… pgboss=… floor=… ratio_graphile=… ratio_river=… ratio_floor=…
//
// The rates are in jobs per second. river is River with tuned settings.
//
// With -distance the contestants reach Postgres through a proxy that delays every byte.
// Each given round-trip time is measured. For each time, one line compares dispatcherd
// with its own rate at the first round-trip time, and with the fastest competitor.
package main
