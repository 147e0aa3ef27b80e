// Package schedules measures schedules of daemons that run as real processes. All figures come
// from rows of Postgres, except memory and the number of statements.
package schedules
