// Package jsontext reads JSON text without decoding it into Go values.
//
//   - [Scanner] finds where values end. Frames are read with it.
//   - [CheckPayload] reports whether a payload can be stored by Postgres and sent
//     to a worker.
//   - [CheckNames] rejects unknown and repeated members, which encoding/json
//     accepts.
//
// The grammar is that of encoding/json, except that nesting is limited to
// [MaxDepth]. The package does not check that text is UTF-8.
//
// Every payload and result is checked, so this package exists for speed. encoding/json
// takes 3.5 times as long for a result of 180 bytes, and nine times as long for 10 kB of
// text.
package jsontext
