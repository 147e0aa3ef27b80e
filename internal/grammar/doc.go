// Package grammar walks through JSON text: where a value ends, and whether it is
// one. It decodes nothing and allocates nothing. Its JSON is that of encoding/json,
// but that nesting is bounded (carry.MaxDepth); whether the text is UTF-8 is not
// looked at.
//
// Whoever needs more than the extent of a value (frames of workers, bodies of
// callers) reads the members himself and leaves their values to this package.
package grammar
