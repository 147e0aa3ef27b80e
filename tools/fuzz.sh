#!/usr/bin/env bash
# Fuzzes every target of the module for a time (60s, 5m), two at once with one
# processor each. What a target finds is kept below testdata/fuzz of its package.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# Before Go 1.27, go test may report the end of -fuzztime as a failure of the
# target (go.dev/issue/75804). Such a log has exactly this text below FAIL;
# a finding also has the input or a panic.
only_the_time_ended() { # LOG
	[ "$(sed -n '/^--- FAIL/,/^FAIL$/p' "$1" | sed '1d;$d')" = "    context deadline exceeded" ]
}

one() { # PACKAGE TARGET
	local log
	log=$(mktemp)
	if GOMAXPROCS=1 go test -run '^$' -fuzz "^$2\$" -fuzztime "$FUZZTIME" -fuzzminimizetime 100x -parallel 1 "$1" >"$log" 2>&1 || only_the_time_ended "$log"; then
		echo "fuzz: $1 $2: $(grep -oE 'execs: [0-9]+' "$log" | tail -1), nothing found"
		rm -f "$log"
		return 0
	fi
	echo "fuzz: $1 $2 FAILED"
	cat "$log"
	rm -f "$log"
	return 1
}

if [ "${1:-}" = one ]; then
	one "$2" "$3"
	exit
fi
export FUZZTIME=${1:-30s}
# Reads the sources, because "go test -list" builds the tests of every package.
targets=$(grep -rlE --include='*_test.go' --exclude-dir=tools '^func Fuzz' . | sort | while read -r file; do
	sed -nE "s#^func (Fuzz[A-Za-z0-9]*)\(.*#$(dirname "$file") \1#p" "$file"
done)
echo "fuzz: $(wc -l <<<"$targets") targets, $FUZZTIME each"
xargs -P 2 -L 1 "${BASH_SOURCE[0]}" one <<<"$targets"
