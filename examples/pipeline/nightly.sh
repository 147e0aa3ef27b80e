#!/bin/sh
# Inserts a job for each page and waits for all of them. The payload is {"pages": N}.
set -eu
pages=$(tr -dc 0-9)
jobs=
for page in $(seq "$pages"); do
	jobs="$jobs $(dispatcherd job insert --type page --payload "{\"page\": $page}")"
done
dispatcherd job wait $jobs -o json
