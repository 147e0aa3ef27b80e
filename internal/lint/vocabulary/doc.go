// Package vocabulary finds words that docs/glossary.md has replaced.
//
// A rule is one row of a table: the replaced words, what to write instead, and where the
// words are rejected. Invented words are rejected in every text: code, comments, SQL,
// flags, documents and file names. Some words are also ordinary English or Go. Such a
// word is rejected only in the packages where it had the replaced meaning, and there only
// in file names and in names that Go code declares.
//
// Identifiers are split at case changes and underscores, so that foreignLanes contains
// foreign. [Tree] examines a checkout. Each exception has a reason.
package vocabulary
