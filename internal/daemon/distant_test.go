package daemon

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/claim"
	"github.com/dispatcherd/dispatcherd/internal/background"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/daemon/backend"
	"github.com/dispatcherd/dispatcherd/internal/ondemand"
)

// hangingUp is a database whose first read makes a caller leave.
type hangingUp struct {
	claim.DB

	leave func()
	reads int
}

func (h *hangingUp) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	rows, err := h.DB.Query(ctx, sql, args...)
	h.reads++
	h.leave()
	return rows, err
}

// A job has more reports than one page. While the first page is read, the only caller of the job leaves, and another caller stays.
func TestReportsOfACallerThatLeavesAreReadNoFurther(t *testing.T) {
	db := database(t)
	statement(t, db, `INSERT INTO dispatcherd.reports (job, attempt, name, data) SELECT 7, 1, 'partial', '1' FROM generate_series(1, 250)`)
	h := &hangingUp{DB: db}
	rows := backend.NewRows(h, time.Hour, nil, func(contract.Topics) {})
	b := &backend.Backend{Config: backend.Config{Rows: rows}}
	h.leave = b.Watch(7, ondemand.AnswerTo{})
	defer b.Watch(8, ondemand.AnswerTo{C: make(chan ondemand.Answer, 1)})()
	_, err := rows.Polling().Step(t.Context(), background.Now{At: time.Now()})
	require.NoError(t, err)
	require.Equal(t, 2, h.reads)
}
