package migrations

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/dispatcherd/dispatcherd/internal/dsn"
)

const (
	undefined = "42P01" // undefined_table
	duplicate = "23505" // unique_violation: the slower of two concurrent CREATE SCHEMA
	exists    = "42P06" // duplicate_schema

	tableExists    = "42P07" // duplicate_table
	objectExists   = "42710" // duplicate_object: a type or a policy
	functionExists = "42723" // duplicate_function

	none = -1 // the version of a database without the schema

	// recreate is the command line that replaces the schema of another baseline.
	recreate = "dispatcherd migrate down --yes && dispatcherd migrate up"

	// versionSQL reads the first and the last version. goose writes version 0 when it creates its table.
	versionSQL = "SELECT coalesce(min(version_id), -1), coalesce(max(version_id), -1) FROM " + versionTable +
		" WHERE is_applied AND version_id > 0"
)

// VersionError says that the database has another schema version than this build needs.
type VersionError struct {
	Base int64 // the first version: the number of the baseline, or 1 of builds before 100; -1 = no schema at all
	Have int64 // the last version
	Want int64 // the version of this build
}

// Error says what was found, and what to do about it.
func (e *VersionError) Error() string {
	switch {
	case e.Have == none:
		return "the database has no schema dispatcherd: run 'dispatcherd migrate up'"
	case e.otherBaseline():
		build := "an earlier build"
		if e.Have > e.Want {
			build = "a later build"
		}
		return fmt.Sprintf("the schema dispatcherd is version %d of %s, and this build needs version %d. Before the first release "+
			"there is no upgrade from one to the other. Nothing was changed. Run the program that made the schema, or recreate it, which "+
			"deletes all jobs, schedules and limits: %s", e.Have, build, e.Want, recreate)
	case e.Have < e.Want:
		return fmt.Sprintf("the schema is at version %d and this build needs %d: run 'dispatcherd migrate up'", e.Have, e.Want)
	}
	return fmt.Sprintf("the schema is at version %d, newer than version %d of this build: install a newer dispatcherd", e.Have, e.Want)
}

func (e *VersionError) otherBaseline() bool { return e.Have != none && e.Base != baseline }

// Check returns nil if this build can use the database of conn, and otherwise a *VersionError. The schema must have the version of
// the build, or a newer one whose function compatible_from() returns at most the version of the build.
func Check(ctx context.Context, conn *pgx.Conn) error { return check(ctx, conn, latest) }

func check(ctx context.Context, conn *pgx.Conn, want int64) error {
	at, err := readVersion(conn.QueryRow(ctx, versionSQL))
	if err != nil {
		return err
	}
	at.Want = want
	from := at.Have
	if at.Base == baseline && at.Have > want {
		if err := conn.QueryRow(ctx, "SELECT dispatcherd.compatible_from()").Scan(&from); err != nil {
			return fmt.Errorf("read which versions the schema is compatible with: %w", err)
		}
	}
	if at.Base != baseline || at.Have < want || from > want {
		return at
	}
	return nil
}

// requireBaseline returns the version of the schema, or a *VersionError if it is that of another baseline.
func requireBaseline(ctx context.Context, db *sql.DB) (int64, error) {
	at, err := readVersion(db.QueryRowContext(ctx, versionSQL))
	if err != nil {
		return 0, err
	}
	if at.otherBaseline() {
		return 0, at
	}
	return at.Have, nil
}

// readVersion reads the result of versionSQL.
func readVersion(row interface{ Scan(to ...any) error }) (*VersionError, error) {
	at := &VersionError{Base: none, Have: none, Want: latest}
	if err := row.Scan(&at.Base, &at.Have); err != nil && code(err) != undefined {
		return nil, fmt.Errorf("read the schema version: %w", err)
	}
	return at, nil
}

func code(err error) string { return dsn.ErrorOf(err).Code }
