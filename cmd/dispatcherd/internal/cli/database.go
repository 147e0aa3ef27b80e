package cli

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dispatcherd/dispatcherd/claim"
	"github.com/dispatcherd/dispatcherd/internal/dsn"
	"github.com/dispatcherd/dispatcherd/internal/exit"
)

// connectTimeout bounds the wait for a database that does not answer.
const connectTimeout = 10 * time.Second

// Database is the --database-url setting. As a flag value it is masked, so that no help text,
// error or config listing contains the password.
type Database struct{ DSN string }

// Set accepts any string. The string is checked at its use, because pflag prints an error of
// Set together with the value.
func (d *Database) Set(text string) error {
	d.DSN = text
	return nil
}

// String returns the connection string without its secrets.
func (d *Database) String() string { return dsn.Show(d.DSN) }

// Type names the kind of value in help texts.
func (d *Database) Type() string { return "url" }

// libpqVariables select a database. If one of them is set the connection string may be empty.
var libpqVariables = []string{"PGHOST", "PGDATABASE", "PGSERVICE", "PGUSER", "PGPORT"}

// DatabaseURL returns the connection string. It may be empty if libpq's variables select the
// database. The variables also complete a string that omits parts.
func (a *Invocation) DatabaseURL() (string, error) {
	if a.Database.DSN != "" {
		if _, err := dsn.Parse(a.Database.DSN); err != nil {
			return "", a.badDatabase(err)
		}
		return a.Database.DSN, nil
	}
	if a.HasDatabase() {
		return "", nil
	}
	return "", exit.Usagef("no database is named: give --database-url, or set DATABASE_URL or PGHOST; " +
		"'dispatcherd dev' runs one of its own")
}

// HasDatabase reports whether the settings name a database.
func (a *Invocation) HasDatabase() bool {
	return a.Database.DSN != "" || slices.ContainsFunc(libpqVariables, func(name string) bool {
		value, _ := a.Env(name)
		return value != ""
	})
}

func (a *Invocation) badDatabase(err error) error {
	return exit.Usagef("database-url (%s): %w", a.origins["database-url"], err)
}

// Connect opens a small pool on the database and checks that it answers.
func (a *Invocation) Connect(ctx context.Context) (*pgxpool.Pool, error) {
	url, err := a.DatabaseURL()
	if err != nil {
		return nil, err
	}
	config, err := dsn.Parse(url)
	if err != nil {
		return nil, a.badDatabase(err)
	}
	config.MaxConns = 2 // commands run one statement at a time
	claim.Prepare(config.ConnConfig)
	if config.ConnConfig.ConnectTimeout == 0 {
		config.ConnConfig.ConnectTimeout = connectTimeout
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, exit.Errorf(exit.Unavailable, "database: %w", err)
	}
	if err := pool.Ping(ctx); err != nil {
		pool.Close()
		return nil, err
	}
	return pool, nil
}
