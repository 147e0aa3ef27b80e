package httpapi

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/dispatcherd/dispatcherd/internal/pgtest"
)

// withPostgres runs tests that may use databases.
type withPostgres struct{ *testing.M }

// Run implements goleak.TestingM.
func (m withPostgres) Run() int { return pgtest.Main(m.M) }

func TestMain(m *testing.M) { goleak.VerifyTestMain(withPostgres{m}) }
