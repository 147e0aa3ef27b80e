#!/bin/sh
# Jobs add to accounts, one at a time for each account, at most five per second: PATH=$PWD/bin:$PATH examples/limits/run.sh
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

dispatcherd worker run --types deposit --slots 8 -- ./deposit.sh "$dir" 2>>"$dir/log" &
processes="$processes $!"

jobs=$(psql -qAt -v ON_ERROR_STOP=1 "$DATABASE_URL" -f jobs.sql)
dispatcherd job wait $jobs
for account in 0 1 2; do
	echo "account $account: $(cat "$dir/account-$account")"
done
echo "starts within a second: $(psql -qAt "$DATABASE_URL" -f starts.sql)"
