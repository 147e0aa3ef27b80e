// Command measures prints the measures that keep the code base small and
// readable, on one line:
//
//	measures: go_lines=… old_words=… unsafe=… flags=… doc_words=… packages_over_25_files=… actor_arrows=… actor_upward=… statements=… ci_seconds=…
//
//	go run ./internal/lint/measures [-v] [-check] [-root DIR]
//
// With -v it also prints the findings behind the figures. With -check it
// fails if a target is missed.
//
//   - go_lines: lines of Go files of the root module. Tests, internal/lint,
//     internal/sim, internal/trace and the trace commands do not count. The
//     modules tools and tools/lab do not count either.
//   - old_words: findings of package vocabulary.
//   - unsafe: lines that use package unsafe, in Go files of the
//     root module that are no tests.
//   - flags: flags in the help of serve.
//   - doc_words: words of Markdown files.
//   - packages_over_25_files: packages with more than 25 files that are no
//     tests; workerproto has one file for each message and does not count.
//   - actor_arrows: ordered pairs of files of package actor such that the
//     first uses an identifier that the second declares.
//   - actor_upward: the pairs that point backwards in the best order of these
//     files that a greedy search finds.
//   - statements: claim, finish and fetch statements.
//   - ci_seconds: duration of the last complete run of .ci/run; 0 if unknown.
package main
