#!/bin/sh
# A nightly schedule runs a batch of jobs, and a request reports on them: PATH=$PWD/bin:$PATH examples/pipeline/run.sh
# The private Postgres, the dispatcher and the workers end with this script.
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

worker() { # TYPE SLOTS PROGRAM
	dispatcherd worker run --types "$1" --slots "$2" --env DISPATCHERD_API_SOCKET -- "$3" 2>>"$dir/log" &
	processes="$processes $!"
}
worker nightly 1 ./nightly.sh
worker page 4 ./page.sh
worker report 1 ./report.sh

dispatcherd schedule apply schedules.toml
dispatcherd schedule next nightly -n 3
echo "Not waiting for the night:"
dispatcherd schedule run nightly --key demo
job=$(dispatcherd schedule show nightly -o json | sed -n 's/.*"job": \([0-9]*\).*/\1/p')
dispatcherd job wait "$job"
dispatcherd request report --wait-for-worker 10s
