// Package joins contains the SQL of batches, flows and unique jobs: a join is a counter of jobs that have not ended, in the
// tables batches and nodes.
package joins
