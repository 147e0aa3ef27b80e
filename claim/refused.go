package claim

import (
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/dsn"
)

// Postgres refuses a statement if it cannot process one of its rows: a constraint or a trigger rejects the row, or a
// value cannot be stored or read. There is one answer to that. The statement is repeated once for each row. A row that
// is refused alone is set aside with the reason, and all others are processed.

// SQLSTATEs that are not judged by their class.
const (
	timedOut              = "57014"
	insufficientPrivilege = "42501"
)

// RepeatTime bounds the repetition of a statement row by row. Claims and finishes of other rows continue meanwhile.
const RepeatTime = 2 * time.Second

// Apart sends a statement about items. If Postgres refuses it because of the content of a row, Apart repeats it once
// for each item, in order. It passes each item that is refused alone to refused. Apart ends with any other error, or
// after until, but processes at least one item. It returns the items that were not processed.
func Apart[T any](items []T, until time.Time, send func([]T) error, refused func(T, error)) (rest []T, err error) {
	if len(items) == 0 {
		return nil, nil
	}
	switch err := send(items); {
	case !AboutRow(err):
		if err != nil {
			rest = items
		}
		return rest, err
	case len(items) == 1:
		refused(items[0], err)
		return nil, nil
	}
	return alone(items, until, func(item T) error { return send([]T{item}) }, refused)
}

// alone sends a statement for each item, as [Apart] does.
func alone[T any](items []T, until time.Time, send func(T) error, refused func(T, error)) (rest []T, err error) {
	for i, item := range items {
		if i > 0 && time.Now().After(until) { // each call makes progress, also if the first statement took long
			return items[i:], nil
		}
		switch err := send(item); {
		case AboutRow(err):
			refused(item, err)
		case err != nil:
			return items[i:], err
		}
	}
	return nil, nil
}

// AnswerCode returns the SQLSTATE of the error that Postgres sent, or "" if the error has
// another cause.
func AnswerCode(err error) string { return dsn.ErrorOf(err).Code }

// AboutRow reports whether Postgres returned the error because of the content of a row. It has
// then rolled the statement back. The other errors are about the connection, the server,
// rights, locks, time limits or transactions: a smaller statement would fail as well.
func AboutRow(err error) bool {
	e := dsn.ErrorOf(err)
	return e.SeverityUnlocalized == "ERROR" && len(e.Code) == 5 && e.Code != insufficientPrivilege &&
		!slices.Contains([]string{"08", "25", "26", "28", "3D", "3F", "40", "53", "55", "57"}, e.Code[:2])
}

// reasonOf returns why Postgres refused a row. The message may quote the row, so its length is bounded.
func reasonOf(err error) string {
	return strings.ToValidUTF8(strings.Clone(truncate(err.Error(), 1000)), "")
}

// refusal is what Postgres refuses: an operation on a row, or a read of a lane.
type refusal struct {
	op   Operation
	id   dispatcherd.JobID
	lane contract.Lane
}

// refusals are the rows and lanes that statements leave out until their pauses end. Claims and finishes return the rows
// that were refused, and the Core sets these aside.
type refusals struct {
	mu   sync.Mutex
	list map[refusal]leftOut
}

type leftOut struct {
	until  time.Time
	reason string
}

// reason returns why a statement leaves out a row or a lane; "" = it does not.
func (r *refusals) reason(f refusal) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if p := r.list[f]; time.Now().Before(p.until) {
		return p.reason
	}
	return ""
}

// add begins a pause. It reports whether there was none. If the list is full, the pause is not kept.
func (r *refusals) add(f refusal, reason string) (begun bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	if now.Before(r.list[f].until) {
		return false
	}
	if len(r.list) >= contract.MaxAside {
		for known, p := range r.list {
			if now.After(p.until) {
				delete(r.list, known)
			}
		}
	}
	if len(r.list) < contract.MaxAside {
		r.list[f] = leftOut{now.Add(contract.AsideTime), reason}
	}
	return true
}

// setAside lets an operation leave out a row for a pause, and reports the row.
func (s *Store) setAside(op Operation, id dispatcherd.JobID, reason string) {
	if s.refusals.add(refusal{op: op, id: id}, reason) {
		s.config.Observer.Refused(op, id)
	}
}

// WhyAside returns why a row of a lost dispatcher is not released, or why another statement leaves out the row;
// "" = no reason is known.
func (s *Store) WhyAside(id dispatcherd.JobID) (reason string) {
	for _, op := range []Operation{OpHeartbeat, OpSweep, OpAdopt, OpProgress} {
		if reason = s.refusals.reason(refusal{op: op, id: id}); reason != "" {
			break
		}
	}
	return reason
}

// timeOver is the reason why an end was not sent.
const timeOver = "Postgres refused other ends of the statement, and the time for their repetition was over"

// apart sends a statement about rows, as [Apart] does, and sets aside the rows that Postgres refuses. It leaves out
// rows that are set aside already.
func apart[T any](s *Store, op Operation, rows []T, until time.Time, id func(T) dispatcherd.JobID, send func([]T) error) error {
	var some []T
	for _, row := range rows {
		if s.refusals.reason(refusal{op: op, id: id(row)}) == "" {
			some = append(some, row)
		}
	}
	_, err := Apart(some, until, send, func(row T, err error) { s.setAside(op, id(row), reasonOf(err)) })
	return err
}
