package migrations

import (
	"context"
	"database/sql"
	"fmt"
	"strings"

	"github.com/pressly/goose/v3"
)

// roles is the list of the roles of least privilege, in SQL.
const roles = `ARRAY['dispatcherd_producer', 'dispatcherd_reader', 'dispatcherd_operator', 'dispatcherd_dispatcher']`

// MissingRoles returns the roles of least privilege that do not exist on the server, because each
// "migrate up" so far was executed by a role that may not create roles.
func MissingRoles(ctx context.Context, dsn string) (missing []string, err error) {
	err = with(dsn, false, nil, func(db *sql.DB, _ *goose.Provider) error {
		var names string
		err := db.QueryRowContext(ctx, `
			SELECT coalesce(string_agg(r, ',' ORDER BY n), '')
			FROM unnest(`+roles+`) WITH ORDINALITY AS u (r, n)
			WHERE NOT EXISTS (SELECT FROM pg_roles WHERE rolname = r)`).Scan(&names)
		if names != "" {
			missing = strings.Split(names, ",")
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read which roles exist: %w", err)
	}
	return missing, nil
}

// grantLate gives the roles that were created after the schema their rights. The lock makes
// concurrent calls wait for each other, because Postgres rejects concurrent grants on one object.
func grantLate(ctx context.Context, db *sql.DB) error {
	var late bool
	err := db.QueryRowContext(ctx, `SELECT EXISTS (SELECT FROM pg_roles
		WHERE rolname = ANY (`+roles+`) AND NOT has_schema_privilege(oid, 'dispatcherd', 'USAGE'))`).Scan(&late)
	if err != nil || !late {
		return err
	}
	text, err := schema.ReadFile("schema/9_rights.sql")
	if err == nil { // Postgres executes several statements in one transaction
		_, err = db.ExecContext(ctx, "LOCK TABLE "+versionTable+" IN SHARE ROW EXCLUSIVE MODE; "+string(text))
	}
	return err
}
