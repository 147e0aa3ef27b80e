package e2e

import (
	"os"
	"testing"

	"github.com/dispatcherd/dispatcherd/internal/pgtest"
)

func TestMain(m *testing.M) {
	go startProcesses()
	code := pgtest.Main(m)
	removeProgram()
	os.Exit(code)
}
