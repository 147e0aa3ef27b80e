// Package migrations migrates the schema dispatcherd of a database to the version that this build
// needs. The SQL is embedded. goose applies it under a lock, so any number of daemons may start at
// the same time. A migration never waits long for the lock of a table.
//
// The schema dispatcherd contains all objects, including the table of versions. Migrating down to 0
// removes the schema. The roles remain, because they belong to the server and not to the database.
package migrations

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"

	"github.com/dispatcherd/dispatcherd/internal/dsn"
)

//go:embed sql/*.sql
var files embed.FS

const (
	versionTable = "dispatcherd.schema_version"
	undefined    = "42P01" // undefined_table
	duplicate    = "23505" // unique_violation: the slower of two concurrent CREATE SCHEMA
	exists       = "42P06" // duplicate_schema
	noFunction   = "42883" // undefined_function
	unfit        = "55000" // object_not_in_prerequisite_state: a migration waits for the end of older daemons
	latest       = 44      // the highest number in sql/; a new migration raises it
	needed       = 42      // daemons of this build can use the schema from this version on
)

// PostponedError says that the last migrations wait until daemons of a former version have ended. Daemons of this
// build can use the schema meanwhile.
type PostponedError struct{ reason string }

// Error says what to do about it.
func (e *PostponedError) Error() string {
	return "the last step is postponed: " + e.reason + "; replace them, then run 'dispatcherd migrate up' again"
}

// Migration is one migration and when it was applied.
type Migration struct {
	Version   int64      `json:"version"`
	Name      string     `json:"name"`       // file name
	AppliedAt *time.Time `json:"applied_at"` // in UTC; nil while pending
}

// Latest returns the newest schema version that this build knows.
func Latest() int64 { return latest }

// Up applies all missing migrations and returns their versions. It gives the roles that were created
// after the migrations their rights. dsn is a URL or a key/value string;
// PG* variables supply missing parts.
func Up(ctx context.Context, dsn string) (applied []int64, err error) {
	err = with(dsn, func(db *sql.DB, p *goose.Provider) error {
		if err := createSchema(ctx, db); err != nil {
			return err
		}
		if _, _, err := p.GetVersions(ctx); err != nil { // creates the table of versions, without the lock
			return fmt.Errorf("migrate up: %w", err)
		}
		results, err := retryLocked(ctx, p.Up)
		applied = versions(results)
		if e, ok := errors.AsType[*pgconn.PgError](err); ok && e.Code == unfit {
			err = &PostponedError{e.Message}
		}
		if err != nil {
			return fmt.Errorf("migrate up: %w", err)
		}
		if err := grantLate(ctx, db); err != nil {
			return fmt.Errorf("migrate up: grant the rights of roles created after the migrations: %w", err)
		}
		return nil
	}, goose.WithLocker(&versionLock{}))
	return applied, err
}

// Down migrates the schema back to version to and returns the versions that it has undone. If to is 0,
// it removes the schema dispatcherd with all jobs. It returns an error if the schema contains objects
// that do not belong to dispatcherd.
func Down(ctx context.Context, dsn string, to int64) (undone []int64, err error) {
	err = with(dsn, func(db *sql.DB, p *goose.Provider) error {
		if at, err := version(ctx, db); err != nil || at < 0 {
			return err
		}
		results, err := retryLocked(ctx, func(ctx context.Context) ([]*goose.MigrationResult, error) { return p.DownTo(ctx, to) })
		undone = versions(results)
		if err == nil && to <= 0 {
			_, err = db.ExecContext(ctx, "DROP TABLE IF EXISTS "+versionTable)
		}
		if err != nil {
			return fmt.Errorf("migrate down: %w", err)
		}
		if to > 0 {
			return nil
		}
		if _, err := db.ExecContext(ctx, "DROP SCHEMA IF EXISTS dispatcherd"); err != nil {
			return fmt.Errorf("migrate down: the schema dispatcherd holds objects that are not dispatcherd's own: %w", err)
		}
		return nil
	}, goose.WithLocker(&versionLock{}))
	return undone, err
}

// Status lists all migrations of this build in order and changes nothing.
func Status(ctx context.Context, dsn string) (list []Migration, err error) {
	err = with(dsn, func(db *sql.DB, p *goose.Provider) error {
		at, err := version(ctx, db)
		if err != nil {
			return err
		}
		if at < 0 { // p.Status would create the table of versions
			for _, s := range p.ListSources() {
				list = append(list, Migration{Version: s.Version, Name: s.Path})
			}
			return nil
		}
		steps, err := p.Status(ctx)
		if err != nil {
			return fmt.Errorf("migrate status: %w", err)
		}
		for _, s := range steps {
			m := Migration{Version: s.Source.Version, Name: s.Source.Path}
			if !s.AppliedAt.IsZero() {
				at := s.AppliedAt.UTC()
				m.AppliedAt = &at
			}
			list = append(list, m)
		}
		return nil
	})
	return list, err
}

// VersionError says that the database has another schema version than this build needs.
type VersionError struct {
	Have int64 // -1 = no schema at all
	Want int64
}

// Error says what to do about it.
func (e *VersionError) Error() string {
	switch {
	case e.Have < 0:
		return "the database has no schema dispatcherd: run 'dispatcherd migrate up'"
	case e.Have < e.Want:
		return fmt.Sprintf("the schema is at version %d and this build needs %d: run 'dispatcherd migrate up'", e.Have, e.Want)
	}
	return fmt.Sprintf("the schema is at version %d, newer than version %d of this build: install a newer dispatcherd", e.Have, e.Want)
}

// Check returns nil if this build can use the database of conn, and otherwise a *VersionError. The
// schema must have a version that the build can use, or a newer one. In a newer schema compatible_from() must
// return at most the version of the build.
func Check(ctx context.Context, conn *pgx.Conn) error {
	var have int64
	err := conn.QueryRow(ctx, "SELECT coalesce(max(version_id), -1) FROM "+versionTable+" WHERE is_applied").Scan(&have)
	switch {
	case code(err) == undefined:
		have = -1
	case err != nil:
		return fmt.Errorf("read the schema version: %w", err)
	}
	if have > latest {
		from, err := compatibleFrom(ctx, conn)
		if err != nil || from <= latest {
			return err
		}
	}
	if have < needed || have > latest {
		return &VersionError{Have: have, Want: latest}
	}
	return nil
}

// compatibleFrom returns the lowest version of a build that can use the schema. If the schema has no
// function compatible_from(), only builds of the same version can use it.
func compatibleFrom(ctx context.Context, conn *pgx.Conn) (from int64, err error) {
	err = conn.QueryRow(ctx, "SELECT dispatcherd.compatible_from()").Scan(&from)
	switch {
	case code(err) == noFunction:
		return math.MaxInt64, nil
	case err != nil:
		return 0, fmt.Errorf("read which versions the schema is compatible with: %w", err)
	}
	return from, nil
}

// with calls do with a database and the migrations for it.
func with(database string, do func(*sql.DB, *goose.Provider) error, options ...goose.ProviderOption) error {
	config, err := dsn.Parse(database)
	if err != nil {
		return err
	}
	db := stdlib.OpenDB(*config.ConnConfig, stdlib.OptionAfterConnect(limitLockWait))
	defer db.Close()
	dir, err := fs.Sub(files, "sql")
	if err != nil {
		return err
	}
	p, err := goose.NewProvider(goose.DialectPostgres, db, dir,
		append(options, goose.WithTableName(versionTable), goose.WithDisableGlobalRegistry(true))...)
	if err != nil {
		return err
	}
	return do(db, p)
}

// createSchema creates the schema, which contains the table of versions. If two sessions create it at
// the same time, one gets an error, although the schema exists.
func createSchema(ctx context.Context, db *sql.DB) error {
	_, err := db.ExecContext(ctx, "CREATE SCHEMA IF NOT EXISTS dispatcherd")
	if c := code(err); err != nil && c != duplicate && c != exists {
		return fmt.Errorf("create the schema dispatcherd: %w", err)
	}
	return nil
}

// version returns the schema version, -1 when there is no version table.
func version(ctx context.Context, db *sql.DB) (int64, error) {
	var v int64
	err := db.QueryRowContext(ctx, "SELECT coalesce(max(version_id), 0) FROM "+versionTable+" WHERE is_applied").Scan(&v)
	if code(err) == undefined {
		return -1, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read the schema version: %w", err)
	}
	return v, nil
}

func code(err error) string {
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		return e.Code
	}
	return ""
}

func versions(results []*goose.MigrationResult) []int64 {
	var list []int64
	for _, r := range results {
		if r.Error == nil {
			list = append(list, r.Source.Version)
		}
	}
	return list
}
