#!/usr/bin/env bash
# Checks the alerts of packaging/prometheus with promtool. Debian has promtool in the
# package prometheus, whose installation would start a server. So this script only
# unpacks the program into bin/. Where promtool cannot be had, the script says so and
# checks nothing. With the argument "install" it checks nothing and is quiet.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# download puts the package into the current folder. The lists of a fresh machine are
# empty.
download() {
	apt-get download prometheus && return
	[ "$1" != install ] && [ "$(id -u)" -eq 0 ] && apt-get update && apt-get download prometheus
}

# unpack takes promtool out of the package.
unpack() {
	command -v apt-get && command -v dpkg-deb || return 1
	local dir status=0
	dir=$(mktemp -d)
	(cd "$dir" && download "$1" && dpkg-deb -x prometheus_*.deb .) || status=1
	if [ "$status" -eq 0 ]; then mkdir -p bin && cp "$dir/usr/bin/promtool" bin/promtool; fi
	rm -rf "$dir"
	return "$status"
}

mode=${1:-check}
promtool=$(command -v promtool || echo bin/promtool)
if [ ! -x "$promtool" ] && ! unpack "$mode" >/dev/null 2>&1; then
	[ "$mode" = install ] || echo "rules: NOT CHECKED: promtool is missing; on Debian it is in the package prometheus" >&2
	exit 0
fi
[ "$mode" != install ] || exit 0
"$promtool" check rules packaging/prometheus/rules.yml >/dev/null
"$promtool" test rules packaging/prometheus/rules_test.yml >/dev/null
echo "rules: $(grep -c -- '- alert:' packaging/prometheus/rules.yml) alerts accepted and tested"
