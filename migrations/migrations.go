// Package migrations brings the schema dispatcherd of a database to the version
// that this build needs. The SQL is embedded; goose applies it under a session
// lock, so any number of daemons may start at the same moment, and never waits
// long for a table that is in use.
//
// Everything lives in the schema dispatcherd, the version table included, and
// migrating down to nothing removes the schema. The two roles stay: they belong
// to the server, not to the database.
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
	"github.com/pressly/goose/v3/lock"
)

//go:embed sql/*.sql
var files embed.FS

const (
	versionTable = "dispatcherd.schema_version"
	lockID       = 7233172 // any number, the same in every version of dispatcherd
	lockEvery    = 1       // seconds between two tries to take the lock
	lockTries    = 300     // so another migration may take five minutes
	undefined    = "42P01" // undefined_table
	duplicate    = "23505" // two CREATE SCHEMA at once, seen from the slower one
	exists       = "42P06" // duplicate_schema
	noFunction   = "42883" // undefined_function
	latest       = 13      // the highest number in sql/
)

// Migration is one step and whether the database has taken it.
type Migration struct {
	Version   int64
	Name      string    // file name
	AppliedAt time.Time // zero while pending
}

// Latest returns the schema version that this build needs.
func Latest() int64 { return latest }

// Up applies all missing migrations and returns their versions.
// dsn is a URL or a key/value string; PG* variables supply missing parts.
func Up(ctx context.Context, dsn string) ([]int64, error) {
	db, err := open(dsn)
	if err != nil {
		return nil, err
	}
	defer db.Close()
	if err := createSchema(ctx, db); err != nil {
		return nil, err
	}
	p, err := provider(db)
	if err != nil {
		return nil, err
	}
	results, err := retryLocked(ctx, p.Up)
	if err != nil {
		return versions(results), fmt.Errorf("migrate up: %w", err)
	}
	return versions(results), nil
}

// Down takes the schema back to version to. 0 removes the schema dispatcherd
// with every job in it, and is an error when it holds objects that are not dispatcherd's.
func Down(ctx context.Context, dsn string, to int64) ([]int64, error) {
	db, err := open(dsn)
	if err != nil {
		return nil, err
	}
	defer db.Close()
	if at, err := version(ctx, db); err != nil || at < 0 {
		return nil, err
	}
	p, err := provider(db)
	if err != nil {
		return nil, err
	}
	results, err := retryLocked(ctx, func(ctx context.Context) ([]*goose.MigrationResult, error) { return p.DownTo(ctx, to) })
	if err != nil {
		return versions(results), fmt.Errorf("migrate down: %w", err)
	}
	if to > 0 {
		return versions(results), nil
	}
	if _, err := db.ExecContext(ctx, "DROP TABLE IF EXISTS "+versionTable); err != nil {
		return versions(results), fmt.Errorf("migrate down: %w", err)
	}
	if _, err := db.ExecContext(ctx, "DROP SCHEMA IF EXISTS dispatcherd"); err != nil {
		return versions(results), fmt.Errorf("migrate down: the schema dispatcherd holds objects that are not dispatcherd's own: %w", err)
	}
	return versions(results), nil
}

// Status lists all migrations of this build in order and changes nothing.
func Status(ctx context.Context, dsn string) ([]Migration, error) {
	db, err := open(dsn)
	if err != nil {
		return nil, err
	}
	defer db.Close()
	p, err := provider(db)
	if err != nil {
		return nil, err
	}
	at, err := version(ctx, db)
	if err != nil {
		return nil, err
	}
	var list []Migration
	if at < 0 { // goose would create its table to answer
		for _, s := range p.ListSources() {
			list = append(list, Migration{Version: s.Version, Name: s.Path})
		}
		return list, nil
	}
	steps, err := p.Status(ctx)
	if err != nil {
		return nil, fmt.Errorf("migrate status: %w", err)
	}
	for _, s := range steps {
		list = append(list, Migration{Version: s.Source.Version, Name: s.Source.Path, AppliedAt: s.AppliedAt})
	}
	return list, nil
}

// VersionError says that the database has another schema version than this
// build needs.
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

// Check returns nil when this build can use the database that conn is connected
// to, and otherwise a *VersionError. The schema must be at the version of the
// build, or be a newer one that says in compatible_from() that the build will do.
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
	if have != latest {
		return &VersionError{Have: have, Want: latest}
	}
	return nil
}

// compatibleFrom is the lowest version that a build may be made for to use the
// schema. A schema that does not say has no use for builds of other versions.
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

func open(dsn string) (*sql.DB, error) {
	config, err := pgx.ParseConfig(dsn)
	if err != nil {
		return nil, err
	}
	return stdlib.OpenDB(*config, stdlib.OptionAfterConnect(limitLockWait)), nil
}

func provider(db *sql.DB) (*goose.Provider, error) {
	dir, err := fs.Sub(files, "sql")
	if err != nil {
		return nil, err
	}
	locker, err := lock.NewPostgresSessionLocker(lock.WithLockID(lockID), lock.WithLockTimeout(lockEvery, lockTries))
	if err != nil {
		return nil, err
	}
	return goose.NewProvider(goose.DialectPostgres, db, dir,
		goose.WithTableName(versionTable), goose.WithSessionLocker(locker), goose.WithDisableGlobalRegistry(true))
}

// createSchema makes room for the version table. Two at once may collide in
// the catalogue, which is as good as having found it there.
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
