// Package dsn parses connection strings of Postgres, prints them without secrets, and has what all connections have in common: the
// settings of their sessions, and which errors end them. An
// error or a setting contains only parts that the driver parsed as user, host, port or
// database. In an invalid string the bounds between parts are unknown, so the package
// prints no part of it.
package dsn

import (
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"regexp"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

const mask = "xxxxx"

var settingName = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_.]*$`)

var urlScheme = regexp.MustCompile(`^[a-zA-Z][a-zA-Z0-9+.-]*://`)

// reasons map a part of the driver's messages to messages that quote nothing.
var reasons = [...]struct{ driver, ours string }{
	{"failed to parse as URL", "it is not a valid URL: in user and password write @ as %40, : as %3A, / as %2F and % as %25"},
	{"failed to parse as keyword/value", `it is not a list of key=value: write a value that contains spaces as 'a b', and ' as \'`},
	{"invalid port", "invalid port: give a number from 1 to 65535; in the password of a URL write / as %2F"},
	{"could not match", "it has another number of ports than of hosts"},
	{"sslmode is invalid", "sslmode must be disable, allow, prefer, require, verify-ca or verify-full"},
	{`both "sslcert" and "sslkey"`, "sslcert and sslkey need each other"},
	{"failed to read service", "the service is not in the service file"},
	{"invalid connect_timeout", "connect_timeout must be a number of seconds"},
	{"cannot parse pool_", "a setting that begins with pool_ has an invalid value"},
}

// Parse parses a connection string. Libpq's variables supply missing parts. The error quotes no
// part of the string and wraps no error of the driver.
func Parse(text string) (*pgxpool.Config, error) {
	if reason := misread(text); reason != "" {
		return nil, invalid(reason)
	}
	config, err := pgxpool.ParseConfig(text)
	if err == nil {
		if err := applyLibpq(config.ConnConfig); err != nil {
			return nil, invalid(err.Error())
		}
		config.ConnConfig.OnPgError = func(_ *pgconn.PgConn, e *pgconn.PgError) bool { return !Cured(e) }
		for name := range config.ConnConfig.RuntimeParams {
			if !settingName.MatchString(name) { // the driver takes everything before "=" for a name and sends it to the server
				return nil, invalid("it is neither a URL nor a list of key=value: a URL begins with postgres://, without a space or quote before it")
			}
		}
		return config, nil
	}
	if file, ok := errors.AsType[*fs.PathError](err); ok {
		return nil, invalid(fmt.Sprintf("a file that it names cannot be read: %v", file.Err))
	}
	for _, r := range reasons {
		if strings.Contains(err.Error(), r.driver) {
			return nil, invalid(r.ours)
		}
	}
	return nil, invalid("one of its settings has an invalid value")
}

func invalid(reason string) error {
	return fmt.Errorf("the connection string is invalid and not shown, because it may contain a password: %s", reason)
}

// misread returns why the driver would take a part of the password for something else, "" if it
// would not.
func misread(text string) string {
	scheme := strings.ToLower(urlScheme.FindString(text))
	if scheme == "" {
		return ""
	}
	if !strings.HasPrefix(text, "postgres://") && !strings.HasPrefix(text, "postgresql://") { // the driver parses "x://…?a=b" as a setting
		return "a URL begins with postgres:// or postgresql://; the other form is a list of settings such as host=db dbname=app"
	}
	rest := text[len(scheme):]
	if i := strings.IndexAny(rest, "@/"); i >= 0 && rest[i] == '@' {
		rest = rest[i+1:]
	}
	if strings.Contains(rest, "@") {
		return "it has an @ after the one before the host: write @ as %40, and / in a password as %2F"
	}
	return ""
}

// Show returns a connection string as it may be printed: a URL with user, hosts, ports and database,
// and whether there is a password. Other settings are omitted, because a mistyped password may be
// among them.
func Show(text string) string {
	if text == "" {
		return ""
	}
	config, err := Parse(text)
	if err != nil {
		return "(invalid)"
	}
	c := config.ConnConfig
	u := url.URL{Scheme: "postgres", User: url.User(c.User), Host: strings.Join(hostsOf(c), ","), Path: "/" + c.Database}
	if c.Password != "" {
		u.User = url.UserPassword(c.User, mask)
	}
	return u.String()
}
