// Package lint contains the rules that golangci-lint cannot express, as tests.
// Imports, forbidden calls, lengths of lines and functions, and comments are
// rules in .golangci.yaml. Each test here names the defect that it prevents,
// and shows first that it finds a small bad example.
//
// The package exports nothing.
package lint
