#!/bin/sh
# Adds the words of all pages that are done.
set -eu
pages=0
words=0
for job in $(dispatcherd job list --type page --status done --limit 1000 -o jsonl | sed -n 's/^{"id":\([0-9]*\).*/\1/p'); do
	pages=$((pages + 1))
	words=$((words + $(dispatcherd job get "$job" -o json | sed -n 's/.*"result": \([0-9]*\).*/\1/p')))
done
echo "{\"pages\": $pages, \"words\": $words}"
