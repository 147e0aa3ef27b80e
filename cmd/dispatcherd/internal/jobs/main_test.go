package jobs

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/dispatcherd/dispatcherd/cmd/dispatcherd/internal/console"
	"github.com/dispatcherd/dispatcherd/cmd/dispatcherd/internal/settings"
	"github.com/dispatcherd/dispatcherd/internal/pgtest"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

// on runs commands on a database and returns their data output and their
// messages.
func on(url, stdin string) (a commands, out, errs *bytes.Buffer) {
	out, errs = &bytes.Buffer{}, &bytes.Buffer{}
	return commands{&settings.Invocation{
		Console:  console.Console{In: strings.NewReader(stdin), Out: out, Err: errs},
		Env:      func(string) (string, bool) { return "", false },
		Database: settings.Database{DSN: url},
	}}, out, errs
}
