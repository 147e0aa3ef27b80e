package exit

import (
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/dispatcherd/dispatcherd/internal/dsn"
)

// Denied reports whether Postgres rejected a statement because a role lacks a right.
func Denied(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && pg.Code == "42501"
}

// rightsOf names the least role that a group of commands needs; the first match counts. See docs/explanation/security.md.
var rightsOf = []struct{ command, role string }{
	{"dispatcherd serve", "dispatcherd_dispatcher"},
	{"dispatcherd trace", "dispatcherd_reader"},
}

// WhatToGrant says which role lacks a right that a command needs, and which statement grants it.
func WhatToGrant(database, command string) string {
	user := "…"
	if c, err := dsn.Parse(database); err == nil {
		user = fmt.Sprintf("%q", c.ConnConfig.User)
	}
	grant := "use the owner of the schema"
	for _, r := range rightsOf {
		if strings.HasPrefix(command, r.command) {
			grant = fmt.Sprintf("let an administrator run 'GRANT %s TO %s;', or name another role", r.role, user)
			break
		}
	}
	return fmt.Sprintf("the role %s of --database-url lacks this right; %s (docs/explanation/security.md, \"Postgres roles\")", user, grant)
}
