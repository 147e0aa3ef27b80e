#!/bin/sh
# Inserts a flow, waits for its report and shows it: PATH=$PWD/bin:$PATH examples/flow/run.sh
# The private Postgres, the dispatcher and the worker end with this script.
set -eu
cd "$(dirname "$0")"
dir=$(mktemp -d)
processes=
trap '[ -z "$processes" ] || kill $processes; wait; rm -rf "$dir"' EXIT

dispatcherd dev --ephemeral --worker-socket "$dir/w" --api-socket "$dir/a" >"$dir/settings" 2>"$dir/log" &
processes=$!
until grep -q DISPATCHERD_API_SOCKET "$dir/settings"; do
	kill -0 "$processes" || { cat "$dir/log" >&2; exit 1; }
	sleep 0.1
done
. "$dir/settings" # DATABASE_URL and the sockets

dispatcherd worker run --types load,half,sum,alarm,report --slots 2 -- python3 step.py 2>>"$dir/log" &
processes="$processes $!"

flow=$(dispatcherd flow insert flow.json)
dispatcherd job wait "$flow" # the callback has the id of the flow
dispatcherd job get "$flow" | grep '^result'
dispatcherd flow show "$flow"
