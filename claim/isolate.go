package claim

import (
	"slices"
	"time"
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

// isolate sends a statement about items, of which there is at least one, and halves it after an error that one item
// may have caused, until single items remain. So an item that Postgres cannot process
// does not stop the others. The parts are sent in the order of the items. Another
// error ends the search and is returned.
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

// AboutRow reports whether Postgres returned the error because of the content of a row.
func AboutRow(err error) bool { return byItem(err) && serverError(err).Code != timedOut }

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
