package cli

import (
	"slices"

	"github.com/dispatcherd/dispatcherd/internal/dsn"
	"github.com/dispatcherd/dispatcherd/internal/exit"
)

// libpqVariables select a database. If one of them is set the connection string may be empty.
var libpqVariables = []string{"PGHOST", "PGDATABASE", "PGSERVICE", "PGUSER", "PGPORT"}

// DatabaseURL returns the connection string. It may be empty if libpq's variables select the
// database. The variables also complete a string that omits parts.
func (a *Invocation) DatabaseURL() (string, error) {
	if a.DSN != "" {
		if _, err := dsn.Parse(a.DSN); err != nil {
			return "", exit.Usagef("database-url (%s): %w", a.Origin("database-url"), err)
		}
		return a.DSN, nil
	}
	if slices.ContainsFunc(libpqVariables, func(name string) bool { return a.Env[name] != "" }) {
		return "", nil
	}
	return "", exit.Usagef("no database is named: give --database-url, or set DATABASE_URL or PGHOST; " +
		"'dispatcherd dev' runs one of its own")
}
