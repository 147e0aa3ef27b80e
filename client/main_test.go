//go:build unix

package client

import (
	"os"
	"testing"

	"github.com/dispatcherd/dispatcherd/internal/pgtest"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }
