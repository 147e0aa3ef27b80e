#!/usr/bin/env bash
# Fuzzes every target of the module for a time (60s, 5m), two at once with one
# processor each. What a target finds is kept below testdata/fuzz of its package.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

one() { # PACKAGE TARGET
	local log
	log=$(mktemp)
	if GOMAXPROCS=1 go test -run '^$' -fuzz "^$2\$" -fuzztime "$FUZZTIME" -fuzzminimizetime 100x -parallel 1 "$1" >"$log" 2>&1; then
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
targets=$(go list ./... | while read -r package; do
	go test -list '^Fuzz' "$package" | sed -n "s#^Fuzz#$package Fuzz#p"
done)
echo "fuzz: $(wc -l <<<"$targets") targets, $FUZZTIME each"
xargs -P 2 -L 1 "${BASH_SOURCE[0]}" one <<<"$targets"
