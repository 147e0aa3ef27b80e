// Package limits measures keys and limits of daemons that run as real processes. What it says about the order and
// the number of jobs that ran is computed from rows of Postgres alone: when each attempt started and ended, by the
// clock of the database.
package limits
