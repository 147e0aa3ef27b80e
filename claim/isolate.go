package claim

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/actor/aside"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/timing"
)

// SQLSTATEs that are not judged by their class.
const (
	timedOut              = "57014"
	insufficientPrivilege = "42501"
)

// The bounds of a search for rows that a statement cannot process. Forty statements
// find two such rows among a thousand.
const (
	isolationStatements = 40
	isolationTime       = 5 * time.Second
)

// refusedItem is an item that Postgres refused in a statement of its own.
type refusedItem[T any] struct {
	item T
	err  error
}

// isolated is the result of a search for the items that a statement cannot process.
type isolated[T any] struct {
	refused   []refusedItem[T]
	rest      []T  // not processed, because the search reached a bound or ended with an error
	succeeded bool // at least one statement was executed
}

// isolate sends a statement about at least one item. After an error that one item may
// have caused, isolate halves the statement until single items remain. So an item that
// Postgres cannot process does not stop the others. isolate sends the parts in the order
// of the items. It ends with any other error and returns that error.
func isolate[T any](items []T, send func([]T) error) (r isolated[T], err error) {
	end := time.Now().Add(isolationTime)
	parts := [][]T{items} // the next part is the last one
	for n := 0; len(parts) > 0; n++ {
		if n == isolationStatements || n > 0 && time.Now().After(end) {
			break
		}
		part := parts[len(parts)-1]
		err = send(part)
		if err != nil && !byItem(err) {
			break
		}
		parts = parts[:len(parts)-1]
		switch half := (len(part) + 1) / 2; {
		case err == nil:
			r.succeeded = true
		case len(part) == 1:
			r.refused = append(r.refused, refusedItem[T]{part[0], err})
		default:
			parts = append(parts, part[half:], part[:half])
		}
		err = nil
	}
	slices.Reverse(parts)
	r.rest = slices.Concat(parts...)
	return r, err
}

// Isolate sends a statement about at least one item, as [isolate] does. It passes each item that
// Postgres refuses to refused, and returns those that were not processed.
func Isolate[T any](items []T, send func([]T) error, refused func(T, error)) (rest []T, err error) {
	r, err := isolate(items, send)
	for _, f := range r.refused {
		refused(f.item, f.err)
	}
	return r.rest, err
}

// AnswerCode returns the SQLSTATE of the error that Postgres sent, or "" if the error has
// another cause.
func AnswerCode(err error) string {
	if e := serverError(err); e != nil {
		return e.Code
	}
	return ""
}

// AboutRow reports whether Postgres returned the error because of the content of a row.
func AboutRow(err error) bool { return byItem(err) && serverError(err).Code != timedOut }

// corrupted reports whether Postgres could not read a value of a row.
func corrupted(err error) bool {
	e := serverError(err)
	return e != nil && strings.HasPrefix(e.Code, "XX")
}

// byItem reports whether one of several items may have caused the error of a
// statement. Postgres has then rolled the statement back. The other errors are about
// the connection, the server, rights, locks or transactions: a smaller statement would
// fail as well.
func byItem(err error) bool {
	e := serverError(err)
	if e == nil || e.SeverityUnlocalized != "ERROR" || len(e.Code) != 5 {
		return false
	}
	return e.Code == timedOut || e.Code != insufficientPrivilege &&
		!slices.Contains([]string{"08", "25", "26", "28", "3D", "3F", "40", "53", "55", "57"}, e.Code[:2])
}

// asideRows are the rows that the statements of [apart] leave out for a growing pause,
// because Postgres refused to change them, and the rows that were locked. A locked row is
// not left out, because these statements skip locked rows. Each list has the bound
// [aside.Max].
type asideRows struct {
	mu      sync.Mutex
	refused map[Operation]*aside.Rows // Postgres may refuse one change of a row and accept another
	locked  aside.Rows
	ranges  aside.Ranges // fetches leave them out
	rng     *rand.Rand
	begun   time.Time
}

func newAsideRows() *asideRows {
	return &asideRows{
		refused: map[Operation]*aside.Rows{OpAdopt: {}, OpHeartbeat: {}, OpProgress: {}, OpSweep: {}},
		rng:     rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())), begun: time.Now(),
	}
}

func (a *asideRows) now() timing.Instant { return timing.Instant(time.Since(a.begun).Milliseconds()) }

// paused reports whether Postgres refused to change a row in an operation, and the pause has
// not ended.
func (a *asideRows) paused(op Operation, id dispatcherd.JobID) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	_, paused := a.refused[op].Reason(id, a.now())
	return paused
}

// WhyAside returns why a row of a lost dispatcher is not released, why a job is not
// cancelled, or why another statement leaves out the row; "" = no reason is known.
func (s *Store) WhyAside(id dispatcherd.JobID) string {
	a := s.aside
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, rows := range []*aside.Rows{a.refused[OpHeartbeat], a.refused[OpSweep], a.refused[OpAdopt], a.refused[OpProgress], &a.locked} {
		if reason, found := rows.Reason(id, a.now()); found {
			return reason
		}
	}
	return ""
}

// WhyUnread returns why fetches leave out the range of a lane in which the row may be; "" = they
// leave out no such range.
func (s *Store) WhyUnread(id dispatcherd.JobID) string {
	s.aside.mu.Lock()
	defer s.aside.mu.Unlock()
	return s.aside.ranges.Reason(id)
}

// setAside adds a row to a list and reports it, unless its pause has not ended.
func (s *Store) setAside(op Operation, rows *aside.Rows, row contract.Unclaimable) {
	a := s.aside
	a.mu.Lock()
	_, paused := rows.Reason(row.ID, a.now())
	if !paused {
		rows.Add([]contract.Unclaimable{row}, a.now(), a.rng)
	}
	a.mu.Unlock()
	if !paused {
		s.config.Observer.Refused(op, row.ID)
	}
}

// errTimeOver ends the search for a row.
var errTimeOver = errors.New("the time for this work is over")

// apart sends a statement about rows. If Postgres refuses it because of some rows, apart
// sets these rows aside, and the statement processes the others. It leaves out rows that
// are set aside already. After until it sends nothing more, except the first statement.
func apart[T any](s *Store, op Operation, rows []T, until time.Time, id func(T) dispatcherd.JobID, send func([]T) error) error {
	var some []T
	for _, row := range rows {
		if !s.aside.paused(op, id(row)) {
			some = append(some, row)
		}
	}
	sent := false
	for len(some) > 0 {
		r, err := isolate(some, func(part []T) error {
			if sent && time.Now().After(until) {
				return errTimeOver
			}
			sent = true
			return send(part)
		})
		for _, f := range r.refused {
			s.setAside(op, s.aside.refused[op], contract.Unclaimable{ID: id(f.item), Reason: f.err.Error()})
		}
		if errors.Is(err, errTimeOver) {
			return nil // a later call processes the rest
		}
		if err != nil {
			return err
		}
		some = r.rest
	}
	return nil
}
