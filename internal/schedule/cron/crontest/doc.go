// Package crontest generates cron expressions around changes of the wall clock, and
// enumerates their occasions in the simplest way: it asks for every minute, or second,
// what the wall clock shows. It shares no code with package cron. It is for tests.
package crontest
