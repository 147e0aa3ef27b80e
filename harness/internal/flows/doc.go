// Package flows measures batches, flows, children, fan-outs and unique jobs of daemons that run as real processes. What it says about the
// order of jobs is computed from rows of Postgres alone; see judge.Report.Joins.
package flows
