package claim

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/jackc/pgx/v5"
)

// DefaultLimit is the length of a page.
const DefaultLimit = 100

// Bounds of one search for the jobs that a filter selects. Indexes serve only the ids, and
// the final statuses by their partitions. A search for a type or a time reads rows by
// descending ids until it has found enough, or until it reaches one of the bounds.
const (
	MaxRowsRead   = 100_000
	searchTime    = 2 * time.Second
	rowsPerSearch = 10_000 // of one statement
)

// searchSetup bounds one statement. It forces the scan by descending ids: with stale statistics
// Postgres would read and sort a whole table for each statement.
const searchSetup = `SET LOCAL statement_timeout = %d; SET LOCAL enable_seqscan = off;
	SET LOCAL enable_bitmapscan = off; SET LOCAL enable_sort = off`

// ErrSearchTime says that one statement of a search took too long.
var ErrSearchTime = fmt.Errorf(
	"the search was ended, because one of its statements did not end within %v: Postgres is overloaded, or another session has "+
		"locked a table; "+
		"narrow the search by a status, because each final status has its own tables, or begin at a later page (cursor)",
	searchTime,
)

// List returns a page of jobs without payload, result and progress. Page.Next says where the
// next page begins, also if a bound ended the search.
func (j Jobs) List(ctx context.Context, f contract.Filter) (contract.JobPage, error) {
	if f.Most <= 0 {
		f.Most = DefaultLimit
	}
	found, err := j.find(ctx, f)
	page := contract.JobPage{Page: contract.Page[contract.Job]{Items: []contract.Job{}, Next: found.cursor()}, Read: found.read}
	if found.next != 0 && len(found.ids) < f.Most {
		page.Notes = []string{fmt.Sprintf(
			"the search read %d rows, down to job %d, and ended: name a status, because each has its own tables, or go on with the next page",
			found.read, found.next)}
	}
	where, args := conditions(f, []any{nil})
	for some := range slices.Chunk(found.ids, rowsPerRead) {
		if err != nil {
			break
		}
		var jobs []contract.Job
		args[0] = some
		jobs, err = List[contract.Job](ctx, j.DB,
			`SELECT `+jobColumns+` FROM dispatcherd.jobs WHERE id = ANY ($1::bigint[])`+where+` ORDER BY id DESC`, args...)
		page.Items = append(page.Items, jobs...)
	}
	return page, err
}

// search is the result of find.
type search struct {
	ids  []dispatcherd.JobID // of the selected jobs, the newest first
	next dispatcherd.JobID   // the other selected jobs have smaller ids; 0 = there are none
	read int                 // rows
	at   time.Time           // when it began, database clock
}

// cursor returns the cursor of the next page.
func (s *search) cursor() contract.Cursor {
	if s.next == 0 {
		return ""
	}
	return contract.CursorOf(int64(s.next))
}

// find searches the ids of at most f.Most jobs.
func (j Jobs) find(ctx context.Context, f contract.Filter) (s search, err error) {
	began, before, rows := time.Now(), f.Before, rowsPerSearch
	if !f.Selective() && f.Permit == nil && !live(f.Statuses) {
		rows = min(rows, f.Most+1) // all rows match; one more shows whether there are others
	}
	for {
		p, err := j.portion(ctx, f, before, rows)
		if errors.Is(err, ErrSearchTime) && before != f.Before {
			s.next = before
			return s, nil
		}
		if err != nil {
			return s, err
		}
		if s.read += p.Read; s.at.IsZero() {
			s.at = p.At
		}
		for i, id := range p.IDs {
			if f.Permit != nil && !f.Permit(p.Types[i]) {
				continue
			}
			if len(s.ids) == f.Most {
				s.next = s.ids[f.Most-1]
				return s, nil
			}
			s.ids = append(s.ids, id)
		}
		before = p.Last
		if p.Read < rows {
			return s, nil
		}
		if s.read >= MaxRowsRead || time.Since(began) > searchTime {
			s.next = before
			return s, nil
		}
	}
}

// live reports whether one of the statuses is pending or running. Rows with these statuses
// share a table, so that a search for one of them reads both.
func live(statuses []dispatcherd.Status) bool {
	return slices.Contains(statuses, dispatcherd.Pending) || slices.Contains(statuses, dispatcherd.Running)
}

// portion is what one statement of a search returns.
type portion struct {
	Read  int
	Last  dispatcherd.JobID // the smallest id that was read
	IDs   []dispatcherd.JobID
	Types []string // of IDs
	At    time.Time
}

// portion reads rows by descending ids, and returns those that the filter selects.
func (j Jobs) portion(ctx context.Context, f contract.Filter, before dispatcherd.JobID, rows int) (portion, error) {
	tables := slices.Clone(f.Statuses)
	if live(tables) {
		tables = append(tables, dispatcherd.Pending, dispatcherd.Running)
	}
	if before == 0 {
		before = math.MaxInt64
	}
	selected, args := conditions(f, []any{int64(before), rows})
	columns := slices.DeleteFunc([]string{"keys", "placement", "errors", "run_at", "started_at", "finished_at"}, func(c string) bool {
		return !strings.Contains(selected, c)
	})
	columns = append(columns, "id, type, status, created_at")
	sql := fmt.Sprintf(`WITH read AS MATERIALIZED (
		SELECT %[3]s FROM dispatcherd.jobs WHERE id < $1%[1]s ORDER BY id DESC LIMIT $2
	)
	SELECT now() AS at, count(*)::int AS read, coalesce(min(id), 0)::bigint AS last,
		coalesce(array_agg(id::bigint ORDER BY id DESC) FILTER (WHERE true%[2]s), '{}') AS ids,
		coalesce(array_agg(type::text ORDER BY id DESC) FILTER (WHERE true%[2]s), '{}') AS types FROM read`,
		inStatuses(tables), selected, strings.Join(columns, ", "))
	var p portion
	err := pgx.BeginFunc(ctx, j.DB, func(tx pgx.Tx) (err error) {
		if _, err = tx.Exec(ctx, fmt.Sprintf(searchSetup, searchTime.Milliseconds())); err != nil {
			return err
		}
		p, err = pgx.CollectOneRow(Jobs{DB: tx}.query(ctx, sql, args...), pgx.RowToStructByName[portion])
		return err
	})
	if AnswerCode(err) == timedOut {
		err = ErrSearchTime
	}
	return p, err
}

// conditions adds the conditions of a filter to a list of arguments.
func conditions(f contract.Filter, args []any) (where string, _ []any) {
	add := func(condition string, arg any) {
		args = append(args, arg)
		where += fmt.Sprintf(condition, len(args))
	}
	text := func(condition, value string) {
		if value != "" {
			add(condition, value)
		}
	}
	text(" AND type = $%d", f.Type)
	text(" AND (strpos(' ' || keys || ' ', ' ' || $%[1]d::text || ' ') > 0 OR strpos(' ' || keys, ' ' || $%[1]d::text || '*') > 0)", f.Key)
	text(" AND strpos(lower(errors -> -1 ->> 'error'), lower($%d)) > 0", f.Error)
	if f.Worker != "" {
		add(" AND ("+workerOf+" = $%d", f.Worker)
		add(" OR status = 'running' AND id = ANY ($%d::bigint[]))", f.At)
	}
	if f.WaitedMS > 0 {
		add(" AND "+waitOf+" > $%d * 0.001", f.WaitedMS)
	}
	compare := func(comparison string, m contract.Moment) {
		switch {
		case m.Age > 0:
			add(" AND "+comparison+" now() - $%d::interval", m.Age)
		case !m.At.IsZero():
			add(" AND "+comparison+" $%d", m.At)
		}
	}
	compare("created_at >=", f.Newer)
	compare("created_at <", f.Older)
	compare("finished_at >=", f.Ended)
	return where + inStatuses(f.Statuses), args
}

// inStatuses returns a condition with constants, because Postgres excludes partitions by
// constants only. It contains no text of the caller.
func inStatuses(statuses []dispatcherd.Status) string {
	var texts []string
	for _, s := range dispatcherd.Statuses {
		if slices.Contains(statuses, s) {
			texts = append(texts, "'"+string(s)+"'")
		}
	}
	switch {
	case len(statuses) == 0:
		return ""
	case len(texts) == 0:
		return " AND false" // no row has an unknown status
	}
	return " AND status IN (" + strings.Join(texts, ", ") + ")"
}
