// Package rate measures how fast daemons that run as real processes run jobs, and compares rates.
package rate
