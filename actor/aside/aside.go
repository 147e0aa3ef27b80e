// Package aside keeps the rows that Postgres refused to claim although it claimed
// others, and the ranges of lanes that it refused to read. A row is not claimed during its pause, which doubles with each refusal. The
// Core drops the candidate of such a row, and a full scan after the pause finds the row
// again. A row with an unreadable payload is not set aside: it is claimed, and its attempt
// ends with the reason (claim/load.go).
package aside

import (
	"math/rand/v2"
	"strings"
	"time"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/timing"
)

// Max bounds the rows that are set aside. Further rows are claimed again when a scan
// finds them.
const Max = 10_000

// maxReason bounds the bytes of a reason, which may quote a payload.
const maxReason = 1000

// pause is the time for which a row is not claimed after a refusal.
var pause = timing.Backoff{Base: time.Second, Max: 5 * time.Minute}

// share bounds the claims of rows that are set aside: the pause of a row is at least share for
// each row in the list. So at most 1/share of them are claimed again per second.
const share = 10 * time.Millisecond

// memory is how long a row is remembered after its pause, so that its next pause is
// longer.
const memory = 10 * time.Minute

// Rows are the rows that are set aside, and those that are remembered. The zero value
// is empty and ready.
type Rows struct {
	rows map[dispatcherd.JobID]row
}

type row struct {
	until   timing.Instant // end of the pause
	refused int            // claims in a row
	reason  string
}

// Add sets rows aside that Postgres refused to claim. It returns how many rows it set
// aside: a row that is not known is left out if there are Max rows.
func (r *Rows) Add(refused []contract.Unclaimable, now timing.Instant, rng *rand.Rand) (added int) {
	if len(refused) == 0 {
		return 0
	}
	if r.rows == nil {
		r.rows = map[dispatcherd.JobID]row{}
	}
	r.forget(now)
	for _, u := range refused {
		known, ok := r.rows[u.ID]
		if !ok && len(r.rows) >= Max {
			continue
		}
		added++
		until := now.After(max(pause.Delay(known.refused, rng), time.Duration(len(r.rows))*share))
		r.rows[u.ID] = row{until: until, refused: known.refused + 1, reason: short(u.Reason)}
	}
	return added
}

func short(reason string) string {
	return strings.ToValidUTF8(strings.Clone(reason[:min(len(reason), maxReason)]), "")
}

// forget removes rows that were not claimed again after their pause.
func (r *Rows) forget(now timing.Instant) {
	for id, w := range r.rows { // order-free: each row alone
		if now > w.until.After(memory) {
			delete(r.rows, id)
		}
	}
}

// Reason returns why Postgres refused to claim a row, if the pause of the row has not
// ended.
func (r *Rows) Reason(id dispatcherd.JobID, now timing.Instant) (reason string, aside bool) {
	if len(r.rows) == 0 {
		return "", false
	}
	if w := r.rows[id]; now < w.until {
		return w.reason, true
	}
	return "", false
}

// Remove forgets a row that was claimed after all.
func (r *Rows) Remove(id dispatcherd.JobID) {
	if len(r.rows) > 0 {
		delete(r.rows, id)
	}
}

// Len returns the number of rows that are set aside or remembered.
func (r *Rows) Len() int { return len(r.rows) }
