// Package examples holds workers in other languages and the tests that run
// them against the real server. See README.md.
package examples
