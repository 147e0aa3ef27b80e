// Package contract holds the values that the core and the store exchange: one
// request and one result for each kind of statement. It also holds the rules that
// both sides must compute alike (shares, session fingerprints). The package does no
// I/O and knows no SQL. Package actor fills in the requests, and package claim
// executes them. The contract suite of package claim tests every store against the
// comments here.
package contract
