// Package journal is the flight recorder: it keeps the last steps of a
// dispatcher's core in a ring of bounded size, writes them to a file, and takes
// them from there step by step.
//
// # Shape
//
//	actor loop ──► Recorder: segment │ segment │ segment ──► Write ──► file
//	                         state, events and a hash of their effects each
//	file ──► Read ──► File.Replay ──► a core of its own, event by event
//
// A ring of events alone could not be replayed: nobody would know what they met.
// So each segment begins with the whole state of the core, written by package
// freeze in the loop. That happens once in so many bytes of events that it is a
// small share of the time, see Recorder; what it costs is measured by
// BenchmarkSnapshot.
//
// A core is pure: the same state and the same events give the same effects. So
// of effects only a hash is kept. Replay makes them again, compares the hash,
// and names the first step where they differ: then the recording dispatcher and
// the replaying program are not the same, or the core is not pure.
//
// # What is not in it
//
// No payload, no result and no error text of a worker: package freeze leaves out
// all byte slices, and all strings but those named in kinds.go. Effects that
// carried them come out of a replay without them.
//
// # The file
//
// Eight bytes "DSPJRNL\n", the format's version (4 bytes, little-endian like all
// numbers), the schema of package freeze (8 bytes); then, compressed by gzip,
// sections: a letter, the length and the CRC-32C of the content (4 bytes each), the
// content. T is a text with its name (configuration, metrics and the like), S
// the beginning of a segment, E records, Z the end. A file without Z is cut off.
//
// Only a program with the same schema can replay a file: another one's core
// would decide otherwise anyway.
package journal
