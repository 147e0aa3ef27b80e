#!/usr/bin/env bash
# Checks the systemd units: that systemd accepts them, and that the service is as
# confined as we say (exposure ≤ 1.5 of 10). Needs no running systemd, only its
# program systemd-analyze, version 250 or newer; where that is missing it says so
# and checks nothing.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../packaging/systemd"

skip() {
	echo "units: NOT CHECKED: $1" >&2
	exit 0
}
command -v systemd-analyze >/dev/null 2>&1 ||
	skip "systemd-analyze is missing; on Debian and Fedora it is in the package systemd (make deps installs it where it may)"
version=$(systemd-analyze --version | sed -nE '1s/^systemd ([0-9]+).*/\1/p')
[ "${version:-0}" -ge 250 ] || skip "systemd-analyze is of version ${version:-unknown}, at least 250 is needed"

# Verify wants the program to be there; any executable will do.
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cp dispatcherd.service dispatcherd-{workers,callers}.socket "$dir/"
sed -i "s#^ExecStart=/usr/bin/dispatcherd#ExecStart=$(command -v env)#" "$dir/dispatcherd.service"
if ! said=$(systemd-analyze verify --man=no "$dir"/dispatcherd{.service,-workers.socket,-callers.socket} 2>&1) || [ -n "$said" ]; then
	echo "units: systemd finds fault with them:" >&2
	echo "$said" >&2
	exit 1
fi
if ! systemd-analyze security --offline=true --no-pager --threshold=15 "$dir/dispatcherd.service" >"$dir/report"; then
	cat "$dir/report"
	echo "units: the exposure of dispatcherd.service is above 1.5" >&2
	exit 1
fi
echo "units: accepted; $(tail -1 "$dir/report" | grep -oE 'exposure level.*: [0-9.]+')"
