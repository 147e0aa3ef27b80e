package e2e

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/dispatcherd/dispatcherd/internal/pgtest"
)

func TestMain(m *testing.M) {
	go startProcesses()
	before := goleak.IgnoreCurrent()
	code := pgtest.Main(m)
	removeProgram()
	if err := goleak.Find(before); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		code = 1
	}
	os.Exit(code)
}
