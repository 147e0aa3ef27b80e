// Package vocabulary finds words that docs/glossary.md has replaced.
//
// A rule is one row of a table: the replaced words, what to write instead, and
// where the words are rejected. Invented words are rejected in every text:
// code, comments, SQL, flags, documents and file names. Words that are also
// ordinary English or Go are rejected only as names that Go code declares, in
// the packages where they had the replaced meaning, and in file names there.
//
// Identifiers are split at case changes and underscores, so that
// foreignLanes contains foreign. [Tree] examines a checkout; exceptions have
// a reason each.
package vocabulary
