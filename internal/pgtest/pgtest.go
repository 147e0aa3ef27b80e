// Package pgtest gives every test a database of its own, a copy of a migrated
// template, which takes about 30 ms.
//
// "make test" starts one private Postgres server for all packages, see the
// command internal/pgtest/run. A package that is tested alone starts such a
// server when its first test needs a database. DISPATCHERD_TEST_DATABASE_URL
// names another server to use. Its user must be allowed to create databases.
//
// Roles, settings and the notification queue belong to the server, which other
// packages use at the same time. A test that sessions of other databases would
// disturb uses Alone. A test that stops or changes its server uses devpg.Start.
//
// A package that uses pgtest ends its TestMain with os.Exit(pgtest.Main(m)),
// which stops the server and removes its files. If a test binary is killed, its
// server stops as well.
package pgtest

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dispatcherd/dispatcherd/internal/devpg"
	"github.com/dispatcherd/dispatcherd/migrations"
	"github.com/jackc/pgx/v5"
)

// Variable names the server to use instead of a private one.
const Variable = "DISPATCHERD_TEST_DATABASE_URL"

// sharedTemplate is a migrated database for all packages. If the URL names no
// such database, each package makes its own.
const sharedTemplate = "dispatcherd_template"

const patience = 30 * time.Second // for one administrative statement

var (
	mu     sync.Mutex
	shared *server
	serial atomic.Int64
)

// server creates the databases of the tests. Its template is migrated on first
// use.
type server struct {
	url      func(database string) string
	stop     func() error
	template string
}

// New returns the URL of a fresh migrated database, dropped when t ends.
func New(t testing.TB) string {
	t.Helper()
	s := start(t)
	return s.create(t, s.migrated(t))
}

// Empty returns the URL of a fresh database without any schema.
func Empty(t testing.TB) string {
	t.Helper()
	return start(t).create(t, "template1")
}

// Alone returns the URL of a migrated database on a server that no other test uses.
func Alone(t testing.TB) string {
	t.Helper()
	url, stop, err := Share(context.Background())
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Errorf("pgtest: %v", err)
		}
	})
	return url
}

// Main runs the tests of a package and then stops the server, if one was
// started. It returns the exit code.
func Main(m *testing.M) int {
	code := m.Run()
	mu.Lock()
	defer mu.Unlock()
	if shared == nil {
		return code
	}
	if err := shared.stop(); err != nil {
		fmt.Fprintln(os.Stderr, "pgtest:", err)
		return max(code, 1)
	}
	shared = nil
	return code
}

func start(t testing.TB) *server {
	t.Helper()
	mu.Lock()
	defer mu.Unlock()
	if shared != nil {
		return shared
	}
	if given := os.Getenv(Variable); given != "" {
		shared = existing(t, given)
		return shared
	}
	private, err := startPrivate(context.Background())
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	shared = private
	return shared
}

// startPrivate starts a server without fsync on a Unix socket.
func startPrivate(ctx context.Context) (*server, error) {
	s, err := devpg.Start(ctx, devpg.Options{Ephemeral: true, Settings: map[string]string{"max_connections": "500"}})
	if err != nil {
		return nil, err
	}
	return &server{url: s.URL, stop: s.Stop}, nil
}

// Share starts a private server with a template for the tests of several
// packages. They use it if Variable contains the URL.
func Share(ctx context.Context) (url string, stop func() error, err error) {
	s, err := startPrivate(ctx)
	if err != nil {
		return "", nil, err
	}
	if err := s.migrate(ctx, sharedTemplate); err != nil {
		return "", nil, errors.Join(err, s.stop())
	}
	return s.url(sharedTemplate), s.stop, nil
}

// existing uses a server that already runs.
func existing(t testing.TB, given string) *server {
	t.Helper()
	u, err := url.Parse(given)
	if err != nil || (u.Scheme != "postgres" && u.Scheme != "postgresql") {
		t.Fatalf("pgtest: %s must be a postgres:// URL", Variable)
	}
	s := &server{url: func(database string) string {
		c := *u
		c.Path = "/" + database
		return c.String()
	}}
	if u.Path == "/"+sharedTemplate {
		s.template, s.stop = sharedTemplate, func() error { return nil }
		return s
	}
	s.stop = func() error {
		if s.template == "" {
			return nil
		}
		return s.admin("DROP DATABASE IF EXISTS " + pgx.Identifier{s.template}.Sanitize() + " WITH (FORCE)")
	}
	return s
}

// migrated returns the name of the template.
func (s *server) migrated(t testing.TB) string {
	t.Helper()
	mu.Lock()
	defer mu.Unlock()
	if s.template != "" {
		return s.template
	}
	if err := s.migrate(context.Background(), fmt.Sprintf("dispatcherd_template_%d", os.Getpid())); err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	return s.template
}

// migrate makes the template.
func (s *server) migrate(ctx context.Context, name string) error {
	if err := s.admin("CREATE DATABASE " + pgx.Identifier{name}.Sanitize()); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if _, err := migrations.Up(ctx, s.url(name)); err != nil {
		return err
	}
	s.template = name
	return nil
}

func (s *server) create(t testing.TB, template string) string {
	t.Helper()
	name := fmt.Sprintf("dispatcherd_test_%d_%d", os.Getpid(), serial.Add(1))
	database := pgx.Identifier{name}.Sanitize()
	mu.Lock() // Postgres copies a template for one session at a time
	err := s.admin("CREATE DATABASE " + database + " TEMPLATE " + pgx.Identifier{template}.Sanitize())
	mu.Unlock()
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	t.Cleanup(func() {
		if err := s.admin("DROP DATABASE IF EXISTS " + database + " WITH (FORCE)"); err != nil {
			t.Errorf("pgtest: %v", err)
		}
	})
	return s.url(name)
}

// admin runs one statement in the database postgres.
func (s *server) admin(statement string) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	conn, err := pgx.Connect(ctx, s.url("postgres"))
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, statement)
	return err
}
