// Package lint holds the rules of the architecture as tests: who may import
// whom, what the pure packages must not do, how long functions and files may
// be, what must be documented, and what may be linked into the daemon.
//
// A rule is a function from a parsed file to findings. It has one test that
// runs it over the whole module, and one that shows it a small bad source, for
// a rule that cannot fail is worth nothing. A finding says where, what, and
// what to do about it.
//
// There is nothing to import here.
package lint
