// Package pgtest gives every test a database of its own on one private
// Postgres server per test binary.
//
// The first test that needs a database starts the server, without fsync, on a
// Unix socket. The migrations run once, in a template database. The database of
// a test is a copy of the template, which takes about 30 ms. If
// DISPATCHERD_TEST_DATABASE_URL is set, the tests use that server instead. Its
// user must be allowed to create databases.
//
// A package that uses pgtest ends its TestMain with os.Exit(pgtest.Main(m)),
// which stops the server and removes its files. If a test binary is killed, its
// server stops as well.
package pgtest

import (
	"context"
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
	private, err := devpg.Start(context.Background(), devpg.Options{Ephemeral: true, Settings: map[string]string{"max_connections": "200"}})
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	shared = &server{url: private.URL, stop: private.Stop}
	return shared
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
	name := fmt.Sprintf("dispatcherd_template_%d", os.Getpid())
	if err := s.admin("CREATE DATABASE " + pgx.Identifier{name}.Sanitize()); err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if _, err := migrations.Up(ctx, s.url(name)); err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	s.template = name
	return name
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
