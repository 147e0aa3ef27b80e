#!/usr/bin/env bash
# Installs what build, test and demo need and the machine lacks: a C compiler
# (the race detector), Python 3 (the example worker) and Postgres 14 or newer;
# with the argument "node" also Node.js 18 and npm (the linter of internal/httpapi/openapi.json),
# and what lint can do without: systemd-analyze.
# Installs only as root or where sudo asks nothing; otherwise it prints the one
# line to type and fails. Does nothing, quickly, when nothing is missing.
set -euo pipefail

min_postgres=14

has() { command -v "$1" >/dev/null 2>&1; }

# major DIR: the version of the server in a folder, 0 if there is none.
major() {
	if [ -x "$1/postgres" ] && [ -x "$1/initdb" ]; then
		"$1/postgres" --version | sed -nE 's/.*\(PostgreSQL\) ([0-9]+).*/\1/p'
	else
		echo 0
	fi
}

# have_postgres looks where `dispatcherd dev` looks (internal/devpg/find.go).
have_postgres() {
	local dir dirs=()
	if has postgres; then dirs+=("$(dirname "$(command -v postgres)")"); fi
	if has pg_config; then dirs+=("$(pg_config --bindir || true)"); fi
	dirs+=(/usr/lib/postgresql*/bin /usr/lib/postgresql/*/bin /usr/pgsql-*/bin /usr/libexec/postgresql*
		/opt/homebrew/opt/postgresql@*/bin /usr/local/opt/postgresql@*/bin /home/linuxbrew/.linuxbrew/opt/postgresql@*/bin
		/Applications/Postgres.app/Contents/Versions/*/bin)
	for dir in "${dirs[@]}"; do
		if [ "$(major "$dir" 2>/dev/null || echo 0)" -ge "$min_postgres" ]; then return 0; fi
	done
	return 1
}

if ! has go; then
	echo "deps: Go is missing: install the version in go.mod from https://go.dev/dl/" >&2
	exit 1
fi

missing=()
have_postgres || missing+=(postgres)
has python3 || missing+=(python)
if [ "${1:-}" = node ]; then
	{ has node && has npm; } || missing+=(node)
fi
# On macOS the race detector needs no compiler.
has "${CC:-cc}" || has gcc || has clang || [ "$(uname)" = Darwin ] || missing+=(compiler)
# Only `make units` needs it, and says so if it is missing. It is installed along
# with other packages, or for root, and is never the reason for a failure.
if ! has systemd-analyze && { has apt-get || has dnf; } && { [ ${#missing[@]} -gt 0 ] || [ "$(id -u)" -eq 0 ]; }; then
	missing+=(systemd)
fi
if [ ${#missing[@]} -eq 0 ]; then exit 0; fi

# packages MANAGER: the names of what is missing, as the manager knows them.
packages() {
	local what
	for what in "${missing[@]}"; do
		case "$1:$what" in
		apt-get:postgres) echo postgresql ;;
		apt-get:compiler) echo gcc libc6-dev ;;
		dnf:postgres) echo postgresql-server ;;
		brew:postgres) echo postgresql@17 ;;
		apk:postgres | pacman:postgres) echo postgresql ;;
		apk:compiler) echo gcc musl-dev ;;
		*:compiler) echo gcc ;;
		apt-get:systemd | dnf:systemd) echo systemd ;;
		pacman:python) echo python ;;
		*:python) echo python3 ;;
		brew:node) echo node ;;
		*:node) echo nodejs npm ;;
		esac
	done | tr '\n' ' ' | sed 's/ $//'
}

if [ "$(uname)" = Darwin ] || { has brew && ! has apt-get && ! has dnf; }; then
	echo "deps: missing: ${missing[*]}; install with: brew install $(packages brew)" >&2
	exit 1
fi
if has apt-get; then
	install="apt-get install -y --no-install-recommends $(packages apt-get)"
	update="apt-get update"
elif has dnf; then
	install="dnf install -y $(packages dnf)"
	update=true
elif has apk; then
	install="apk add $(packages apk)"
	update=true
elif has pacman; then
	install="pacman -S --noconfirm $(packages pacman)"
	update=true
else
	echo "deps: missing: ${missing[*]}; install them, Postgres from https://www.postgresql.org/download/" >&2
	exit 1
fi

if [ "$(id -u)" -eq 0 ]; then
	as_root=env
elif has sudo && sudo -n true 2>/dev/null; then
	as_root="sudo -n"
else
	# The lists of a fresh machine are empty.
	[ "$update" = true ] && update='' || update="sudo $update && "
	echo "deps: missing: ${missing[*]}; install with: ${update}sudo $install" >&2
	exit 1
fi
echo "deps: installing what is missing: ${missing[*]}" >&2
# The lists of a fresh machine are empty; stale lists of a working one may do.
$as_root $update >&2 || echo "deps: could not renew the package lists; trying with the old ones" >&2
if ! $as_root env DEBIAN_FRONTEND=noninteractive $install >&2; then
	[ "${missing[*]}" = systemd ] || exit 1
	echo "deps: systemd-analyze could not be installed; make units will check nothing" >&2
	exit 0
fi
if ! have_postgres; then
	echo "deps: the package manager's Postgres is older than $min_postgres; see https://www.postgresql.org/download/" >&2
	exit 1
fi
