package flowstore

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/internal/flow/joins"
	"github.com/dispatcherd/dispatcherd/internal/httpapi/rest"
)

// stranger is a caller who may use all types but payroll.
type stranger struct{ body string }

var errPayroll = errors.New("payroll is for others")

func (stranger) Permit(typ string) error {
	if typ == "payroll" {
		return errPayroll
	}
	return nil
}
func (stranger) PermitAll() error { return errPayroll }

func (stranger) Reveals() bool { return true }
func (s stranger) Permitted() func(string) bool {
	return func(typ string) bool { return s.Permit(typ) == nil }
}
func (stranger) Name() string { return "api: uid=4000" }
func (s stranger) ReadBody(http.ResponseWriter, *http.Request) ([]byte, func(), error) {
	return []byte(s.body), func() {}, nil
}

// between calls then after the first statement.
type between struct {
	joins.DB
	then func()
}

func (b *between) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	row := scanned{b.DB.QueryRow(ctx, sql, args...), b.then}
	b.then = func() {}
	return row
}

type scanned struct {
	pgx.Row
	then func()
}

func (s scanned) Scan(to ...any) error {
	defer s.then()
	return s.Row.Scan(to...)
}

// Another transaction commits a job, or a batch, after the rights of the caller were checked and before the INSERT.
func TestJobThatIsCommittedAfterTheCheckIsNotUsed(t *testing.T) {
	w := newWorld(t)
	for _, c := range []struct{ call, made, body string }{
		{
			"insert-flow", `INSERT INTO dispatcherd.jobs (type) VALUES ('payroll') RETURNING id`,
			`{"nodes": [{"name": "a", "type": "pdf", "after": [%d], "takes_results": true}]}`,
		},
		{"open-batch", `SELECT dispatcherd.open_batch('{"type": "payroll"}')`, `{"callback": {"type": "pdf"}, "parent": %d}`},
	} {
		for _, committed := range []bool{true, false} {
			tx := w.begin()
			var id int64
			require.NoError(t, tx.QueryRow(t.Context(), c.made).Scan(&id))
			commit := func() { require.NoError(t, tx.Commit(t.Context())) }
			db := &between{w.db, commit}
			if committed {
				commit()
				db.then = func() {}
			}
			api := API{DB: db, Notify: func() {}}
			calls := api.Calls()
			route := calls[slices.IndexFunc(calls, func(r rest.Route) bool { return r.ID == c.call })]
			rec := httptest.NewRecorder()
			err := route.Handle(rec, rest.NewRequest(rec, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", http.NoBody),
				stranger{fmt.Sprintf(c.body, id)}))
			require.Error(t, err, "%s: %s", c.call, rec.Body)
			if committed {
				require.ErrorIs(t, err, errPayroll)
			} else {
				require.ErrorIs(t, err, joins.ErrInvalid)
				require.ErrorContains(t, err, fmt.Sprintf("no job or batch has the id %d", id))
			}
		}
	}
	require.Zero(t, get[int](w, `SELECT count(*) FROM dispatcherd.jobs WHERE type = 'pdf'`))
}
