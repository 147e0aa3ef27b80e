#!/usr/bin/env bash
# Looks for known vulnerabilities in what the module and its tools link, by
# govulncheck. With --if-reachable it passes, loudly, where the database of
# vulnerabilities (GOVULNDB, https://vuln.go.dev) cannot be reached.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

out=$(mktemp)
trap 'rm -f "$out"' EXIT
for module in . tools/lab; do
	[ -f "$module/go.mod" ] || continue
	echo "vuln: $module"
	status=0
	bin/govulncheck -C "$module" ./... >"$out" 2>&1 || status=$?
	if [ "$status" -ne 0 ] && grep -qE 'fetching vulnerabilities|dial tcp|no such host|/index/|status code|HTTP GET' "$out" && ! grep -q '^Vulnerability #' "$out"; then
		if [ "${1:-}" = --if-reachable ]; then
			cat >&2 <<-WARNING
				vuln: ****************************************************************
				vuln: NOT CHECKED: the database of vulnerabilities does not answer:
				vuln: $(tail -1 "$out")
				vuln: run 'make vuln' where https://vuln.go.dev can be reached.
				vuln: ****************************************************************
			WARNING
			exit 0
		fi
		echo "vuln: the database of vulnerabilities does not answer:" >&2
	fi
	cat "$out"
	[ "$status" -eq 0 ] || exit "$status"
done
