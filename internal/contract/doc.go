// Package contract holds the values that the core and the store exchange: one
// request and one result for each kind of statement, and the rules about them
// that both sides must compute alike (shares, session fingerprints). It does no
// I/O and knows no SQL. Package actor fills in the requests, package claim
// executes them, and the contract suite of package claim holds every store to
// what the comments here promise.
package contract
