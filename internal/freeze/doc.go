// Package freeze turns values into bytes and back, private fields included. It
// is what the flight recorder is made of: events, effects and the whole state
// of a core are written by their types, so nobody who adds a field has to
// remember it here, and nothing can be forgotten.
//
// # What is written
//
// A type is looked at once and becomes a plan: runs of memory that hold no
// pointer are copied as they are (without the padding between fields), strings
// and slices follow behind their length, pointers become numbers in the order
// in which they are met, so that a graph stays a graph. Writing a value costs
// a few nanoseconds a field and, once the buffers are there, no allocation
// except for maps.
//
// # What is left out
//
// Byte slices, always: they are what users hand over. Strings, unless the
// field that holds them is named in Options.Strings: a new field is silent until
// somebody has decided that it may speak. And what Options.Drop names. What was
// left out is zero when it is read.
//
// # What it is not
//
// An exchange format. The bytes mean something only to the same types: Schema
// says which, and whoever stores bytes stores it beside them.
//
// Reading takes nothing on trust: lengths, numbers and truth values are checked,
// and bytes that do not fit end in an error, never in a panic. Whether what
// they say makes sense is for the reader to judge.
package freeze
