package actor

import (
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"strings"
	"unicode/utf8"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/actor/effect"
)

// MaxLogs bounds the logs of all attempts together, and maxLog that of one attempt, in bytes. Each user
// may hold its share of MaxLogs (see package quota).
const (
	MaxLogs = 16 << 20
	maxLog  = 4 << 10
)

// keepLog appends a message to the log of a queued job and passes it on. The finish of the attempt contains the log. At the
// bounds the oldest text goes.
func (c *Core) keepLog(j *job, s *session, r *contract.Report) {
	if s == nil || j.mode != dispatcherd.Queued {
		return
	}
	c.emit(&effect.Report{Report: *r, Mode: j.mode})
	before, held := len(j.row.log), c.quotas.Logs
	if before == 0 {
		j.row.logUser = s.user
	}
	most := max(0, before+held.Most(j.row.logUser)-held.Of(j.row.logUser))
	if most < min(maxLog, before+len(r.Log)) {
		c.stats.LogCuts++
	}
	j.row.log = lastLines(j.row.log+r.Log, min(most, maxLog))
	held.Add(j.row.logUser, len(j.row.log)-before)
}

// dropLog forgets the log of a job.
func (c *Core) dropLog(j *job) {
	if n := len(j.row.log); n > 0 {
		c.quotas.Logs.Add(j.row.logUser, -n)
	}
}

// lastLines removes whole lines from the front until at most so many bytes are left. Of a last line that
// is longer than that it keeps the end, from the begin of a character.
func lastLines(text string, most int) string {
	from := len(text) - most
	if from <= 0 {
		return text
	}
	if i := strings.IndexByte(text[from-1:], '\n'); i >= 0 && from+i < len(text) {
		from += i
	}
	for from < len(text) && !utf8.RuneStart(text[from]) {
		from++
	}
	return strings.Clone(text[from:]) // the removed text does not stay in memory
}
