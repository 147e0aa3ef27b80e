// Package lint holds the rules of the architecture as tests: which package may
// import which, what the pure packages must not do, the length of functions and
// files, what must be documented, which words are replaced, and what may be
// linked into the daemon.
//
// A rule is a function from a parsed file to findings. One test applies it to
// the whole module. Another one shows that it rejects a small bad source. A
// finding states the place, the violation and what to do.
//
// The package exports nothing.
package lint
