// Package quota divides a bound of the dispatcher among its users, so that no user can
// exclude the others.
//
// A user may hold at most seven eighths of what the other users leave. So each user that
// uses all of its share leaves an eighth of what it found, and a further user may take seven
// eighths of that. The only user may hold seven eighths of the bound. Below eight units
// nothing is reserved. [Places] are for small numbers of places for which users wait.
package quota

import (
	"cmp"
	"fmt"
)

// Quota counts what each user holds of a bound. It is not safe for concurrent use. The zero
// value admits nothing; see New.
type Quota struct {
	limit, held int
	users       map[string]int // only users that hold something
}

// New returns the quota of a bound.
func New(limit int) *Quota { return &Quota{limit: limit, users: map[string]int{}} }

// For returns a bound of which one user may hold n.
func For(n int) int { return n + n/7 + 1 }

// Held returns what all users hold.
func (q *Quota) Held() int { return q.held }

// Of returns what a user holds.
func (q *Quota) Of(user string) int { return q.users[user] }

// Most returns how much a user may hold while the other users hold what they hold now.
func (q *Quota) Most(user string) int {
	left := q.limit - (q.held - q.users[user])
	return max(0, left-left/8)
}

// Fits reports whether a user may hold n more. A user may always hold as much as it does.
func (q *Quota) Fits(user string, n int) bool { return n <= 0 || q.users[user]+n <= q.Most(user) }

// Add counts n more for a user. n may be negative. Add does not check the share.
func (q *Quota) Add(user string, n int) {
	q.held += n
	if q.users[user] += n; q.users[user] == 0 {
		delete(q.users, user)
	}
}

// Objection says why a user may not hold n more of something.
func (q *Quota) Objection(user string, n int, what string) string {
	return fmt.Sprintf(
		"too many %s: %s has %d, wants %d more and may have %d, while all users have %d of %d: use fewer, or another dispatcher",
		what,
		cmp.Or(user, "a user without a name"),
		q.users[user],
		n,
		q.Most(user),
		q.held,
		q.limit,
	)
}

// Largest returns the user that holds most, and how much that is.
func (q *Quota) Largest() (user string, held int) {
	for u, n := range q.users { // order-free: of equal users the first by name
		if n > held || n == held && u < user {
			user, held = u, n
		}
	}
	return user, held
}
