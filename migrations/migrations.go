// Package migrations creates the schema dispatcherd of a database, and brings it to the version that this build needs.
//
// The folder schema contains the text of every object once, in files that are numbered in the order in which a reader wants them.
// Together they are one migration, the baseline. Later versions add files of goose as its successors. goose applies what is missing
// under a lock, so any number of daemons may start at the same time. A migration never waits long for the lock of a table.
//
// The schema contains all objects, including the table of versions, so Down removes the schema and nothing else. The roles remain,
// because they belong to the server and not to the database.
package migrations

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"

	"github.com/dispatcherd/dispatcherd/internal/dsn"
)

const (
	// baseline is the version of the files in the folder schema. Until the first release the files are edited in place, and the
	// number is raised with each edit. Builds before 100 had numbered migrations.
	baseline = 121
	latest   = baseline // the version of the newest upgrade, if there is one

	versionTable = "dispatcherd.schema_version"
)

//go:embed schema/*.sql
var schema embed.FS

// upgrades contains the migrations after the baseline as files of goose, such as 00101_name.sql. There is none before the first release.
var upgrades fs.FS

// Migration is one migration and when it was applied.
type Migration struct {
	Version   int64      `json:"version"`
	Name      string     `json:"name"`       // file name, or baseline
	AppliedAt *time.Time `json:"applied_at"` // in UTC; nil while pending
}

// Up applies all missing migrations and returns their versions. It gives the roles that were created after the schema their rights. dsn
// is a URL or a key/value string; PG* variables supply missing parts. In a database of another baseline it changes nothing and returns
// a *VersionError.
func Up(ctx context.Context, dsn string) (applied []int64, err error) { return up(ctx, dsn, upgrades) }

func up(ctx context.Context, dsn string, upgrades fs.FS) (applied []int64, err error) {
	err = with(dsn, true, upgrades, func(db *sql.DB, p *goose.Provider) error {
		if _, err := requireBaseline(ctx, db); err != nil {
			return err
		}
		if err := createSchema(ctx, db); err != nil {
			return err
		}
		if _, _, err := p.GetVersions(ctx); err != nil { // creates the table of versions, without the lock
			return fmt.Errorf("migrate up: %w", err)
		}
		err := retryLocked(ctx, func(ctx context.Context) error {
			results, err := p.Up(ctx)
			if partial, ok := errors.AsType[*goose.PartialError](err); ok {
				results = partial.Applied
			}
			for _, r := range results {
				applied = append(applied, r.Source.Version)
			}
			return err
		})
		if err != nil {
			return fmt.Errorf("migrate up: %w", err)
		}
		if err := grantLate(ctx, db); err != nil {
			return fmt.Errorf("migrate up: grant the rights of roles created after the schema: %w", err)
		}
		return nil
	})
	return applied, err
}

// Down removes the schema dispatcherd, of whatever version, with all jobs and with everything that depends on it. It reports whether
// there was one.
func Down(ctx context.Context, dsn string) (removed bool, err error) {
	err = with(dsn, true, nil, func(db *sql.DB, _ *goose.Provider) error {
		if err := db.QueryRowContext(ctx, "SELECT to_regnamespace('dispatcherd') IS NOT NULL").Scan(&removed); err != nil || !removed {
			return err
		}
		return retryLocked(ctx, func(ctx context.Context) error {
			_, err := db.ExecContext(ctx, "DROP SCHEMA IF EXISTS dispatcherd CASCADE")
			return err
		})
	})
	if err != nil {
		return false, fmt.Errorf("migrate down: %w", err)
	}
	return removed, nil
}

// Status lists all migrations of this build in order and changes nothing. In a database of another baseline it returns a *VersionError.
func Status(ctx context.Context, dsn string) (list []Migration, err error) {
	err = with(dsn, false, upgrades, func(db *sql.DB, p *goose.Provider) error {
		at, err := requireBaseline(ctx, db)
		if err != nil {
			return err
		}
		for _, s := range p.ListSources() {
			list = append(list, Migration{Version: s.Version, Name: nameOf(s)})
		}
		if at == none { // p.Status would create the table of versions
			return nil
		}
		steps, err := p.Status(ctx)
		if err != nil {
			return fmt.Errorf("migrate status: %w", err)
		}
		for i, s := range steps {
			if !s.AppliedAt.IsZero() {
				at := s.AppliedAt.UTC()
				list[i].AppliedAt = &at
			}
		}
		return nil
	})
	return list, err
}

func nameOf(s *goose.Source) string {
	if s.Version == baseline {
		return "baseline"
	}
	return s.Path
}

// with calls do with a database and the migrations for it. Without writes, the server may be a standby.
func with(database string, writes bool, upgrades fs.FS, do func(*sql.DB, *goose.Provider) error) error {
	config, err := dsn.Parse(database)
	if err != nil {
		return err
	}
	session := dsn.Session{Writes: writes, Settings: map[string]string{"lock_timeout": lockWait}}
	if given := config.ConnConfig.RuntimeParams; strings.Contains(given["options"], "lock_timeout") || given["lock_timeout"] != "" {
		session.Settings["lock_timeout"] = ""
	}
	session.Apply(config.ConnConfig)
	db := stdlib.OpenDB(*config.ConnConfig)
	defer db.Close()
	p, err := goose.NewProvider(goose.DialectPostgres, db, upgrades,
		goose.WithGoMigrations(goose.NewGoMigration(baseline, &goose.GoFunc{RunTx: createBaseline}, nil)),
		goose.WithLocker(&versionLock{}), goose.WithTableName(versionTable), goose.WithDisableGlobalRegistry(true))
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

// createBaseline executes the files of the schema, after goose has created the table of versions.
func createBaseline(ctx context.Context, tx *sql.Tx) error {
	names, err := fs.Glob(schema, "schema/*.sql") // in the order of their names, which is the order of their objects
	if err != nil {
		return err
	}
	for _, name := range names {
		text, err := schema.ReadFile(name)
		if err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, string(text))
		switch code(err) {
		case tableExists, objectExists, functionExists:
			return fmt.Errorf("%s: %w: the schema dispatcherd contains objects, but no installation of any version. Recreate it, which "+
				"deletes them: %s", name, err, recreate)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}
