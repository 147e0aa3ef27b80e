// Package vocabulary finds words that docs/glossary.md has replaced.
//
// A rule is one row of a table: the replaced words, what to write instead, and
// where the words are rejected. Invented words are rejected in every text:
// code, comments, SQL, flags, documents and file names. Some words are also
// ordinary English or Go. They are rejected only in the packages where they
// had the replaced meaning, and there only in file names and in the names that
// Go code declares.
//
// Identifiers are split at case changes and underscores, so that
// foreignLanes contains foreign. [Tree] examines a checkout; exceptions have
// a reason each.
package vocabulary
