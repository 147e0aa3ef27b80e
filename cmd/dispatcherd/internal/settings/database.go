package settings

import (
	"context"
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dispatcherd/dispatcherd/claim"
	"github.com/dispatcherd/dispatcherd/internal/exit"
)

// connectTimeout bounds the wait for a database that does not answer.
const connectTimeout = 10 * time.Second

// Database is the --database-url setting. As a flag value it is masked, so that no help text,
// error or config listing contains the password.
type Database struct{ DSN string }

// Set accepts any string. The string is checked at its use, because pflag prints an error of
// Set together with the value.
func (d *Database) Set(dsn string) error {
	d.DSN = dsn
	return nil
}

// String returns the connection string without its secrets.
func (d *Database) String() string { return maskDSN(d.DSN) }

// Type names the kind of value in help texts.
func (d *Database) Type() string { return "url" }

// libpqVariables select a database. If one of them is set the connection string may be empty.
var libpqVariables = []string{"PGHOST", "PGDATABASE", "PGSERVICE", "PGUSER", "PGPORT"}

// DatabaseURL returns the connection string. It may be empty if libpq's variables select the
// database. The variables also complete a string that omits parts.
func (a *Invocation) DatabaseURL() (string, error) {
	if a.Database.DSN != "" {
		if scheme := urlScheme.FindString(a.Database.DSN); scheme != "" && !isPostgres(scheme) { // pgx parses "x://…?a=b" as a setting
			return "", exit.Errorf(exit.Usage, "database-url (%s): %q begins with %s: a connection string begins with postgres:// or postgresql://, "+
				"or is a list of settings such as host=db dbname=app", a.origins["database-url"], maskDSN(a.Database.DSN), scheme)
		}
		if _, err := pgxpool.ParseConfig(a.Database.DSN); err != nil {
			return "", exit.Errorf(exit.Usage, "database-url (%s): %w", a.origins["database-url"], err) // pgx masks the password
		}
		return a.Database.DSN, nil
	}
	for _, name := range libpqVariables {
		if v, ok := a.Env(name); ok && v != "" {
			return "", nil
		}
	}
	return "", exit.Errorf(exit.Usage, "no database is named: give --database-url, or set DATABASE_URL or PGHOST; "+
		"'dispatcherd dev' runs one of its own")
}

// Connect opens a small pool on the database and checks that it answers.
func (a *Invocation) Connect(ctx context.Context) (*pgxpool.Pool, error) {
	dsn, err := a.DatabaseURL()
	if err != nil {
		return nil, err
	}
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, exit.Errorf(exit.Usage, "database-url (%s): %w", a.origins["database-url"], err) // pgx masks the password
	}
	config.MaxConns = 2 // commands run one statement at a time
	claim.Encode(config.ConnConfig)
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

const mask = "xxxxx"

var urlScheme = regexp.MustCompile(`^[a-zA-Z][a-zA-Z0-9+.-]*://`)

func isPostgres(scheme string) bool { return scheme == "postgres://" || scheme == "postgresql://" }

var secretWord = regexp.MustCompile(`(?i)\b(\w*password)(\s*=\s*)('(?:[^'\\]|\\.)*'|(?:[^\s\\]|\\.)*)`)

// maskDSN hides the secrets of a connection string in either form, and of a URL with a
// mistyped scheme. Use it wherever a connection string is printed.
func maskDSN(dsn string) string {
	if !urlScheme.MatchString(dsn) {
		return secretWord.ReplaceAllString(dsn, "${1}${2}"+mask)
	}
	u, err := url.Parse(dsn)
	if err != nil {
		return "postgres://(unreadable)"
	}
	if _, has := u.User.Password(); has {
		u.User = url.UserPassword(u.User.Username(), mask)
	}
	query := u.Query()
	for key := range query {
		if strings.HasSuffix(strings.ToLower(key), "password") {
			query.Set(key, mask)
			u.RawQuery = query.Encode()
		}
	}
	return u.String()
}
