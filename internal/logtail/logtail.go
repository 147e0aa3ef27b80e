// Package logtail keeps the end of the log of each running attempt until the end of the attempt
// is recorded.
package logtail

import (
	"bytes"
	"sync"
	"unicode/utf8"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/quota"
)

// MaxText bounds the text of one attempt, and MaxTotal what all logs take, in bytes. Buffers may be
// twice as large as their texts, but not larger than MaxText. Each user may hold its share of MaxTotal
// (see package quota).
const (
	MaxText  = 4 << 10
	MaxTotal = 16 << 20

	perLog = 256 // what a log takes besides its text
)

// Tails are the ends of the logs. They may be used concurrently.
type Tails struct {
	mu    sync.Mutex
	held  *quota.Quota // bytes
	tails map[dispatcherd.JobID]*tail
	cuts  uint64
	next  []byte // scratch
}

type tail struct {
	attempt dispatcherd.Attempt
	user    string
	text    []byte
	ended   bool // finishes share text, so it does not change any more
}

// New returns empty Tails.
func New() *Tails {
	return &Tails{held: quota.New(MaxTotal), tails: map[dispatcherd.JobID]*tail{}}
}

// Add appends a line to the log of an attempt. At the bounds the oldest text goes.
func (t *Tails) Add(job dispatcherd.JobID, attempt dispatcherd.Attempt, user, line string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	l := t.tails[job]
	if l != nil && l.attempt == attempt && l.ended {
		return
	}
	if l != nil && l.attempt != attempt {
		t.remove(job, l)
		l = nil
	}
	if l == nil {
		if !t.held.Fits(user, perLog) {
			t.cuts++
			return
		}
		t.held.Add(user, perLog)
		l = &tail{attempt: attempt, user: user}
		t.tails[job] = l
	}
	before := len(l.text)
	most := before + t.held.Most(l.user) - t.held.Of(l.user)
	if most < min(MaxText, before+len(line)) {
		t.cuts++
	}
	t.next = cut(append(append(t.next[:0], l.text...), line...), min(max(most, 0), MaxText))
	if cap(l.text) < len(t.next) {
		l.text = make([]byte, 0, min(MaxText, 2*len(t.next)))
	}
	l.text = append(l.text[:0], t.next...)
	t.held.Add(l.user, len(l.text)-before)
}

// cut removes whole lines from the front until at most so many bytes are left. Of a last line that
// is longer than that it keeps the end, from the begin of a character.
func cut(text []byte, most int) []byte {
	from := len(text) - most
	if from <= 0 {
		return text
	}
	if i := bytes.IndexByte(text[from-1:], '\n'); i >= 0 && from+i < len(text) {
		from += i
	} else {
		for from < len(text) && !utf8.RuneStart(text[from]) {
			from++
		}
	}
	return text[:copy(text, text[from:])]
}

// Of returns the logs of attempts that have ended, nil if there are none.
func (t *Tails) Of(ends []contract.Finish) (logs map[dispatcherd.JobID][]byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.tails) == 0 {
		return nil
	}
	for i := range ends {
		f := &ends[i]
		if l := t.tails[f.ID]; l != nil && l.attempt == f.Attempt {
			if logs == nil {
				logs = map[dispatcherd.JobID][]byte{}
			}
			logs[f.ID], l.ended = l.text, true
		}
	}
	return logs
}

// Recorded drops the logs of the ends that a finish has recorded, or that are stale.
func (t *Tails) Recorded(req *contract.FinishRequest, res *contract.FinishResult) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.tails) == 0 || res.Verdict != contract.OK {
		return
	}
	again := map[dispatcherd.JobID]bool{}
	for i := range res.Deferred {
		again[res.Deferred[i].ID] = true
	}
	for i := range req.Items {
		f := &req.Items[i]
		if l := t.tails[f.ID]; l != nil && l.attempt == f.Attempt && !again[f.ID] {
			t.remove(f.ID, l)
		}
	}
}

func (t *Tails) remove(job dispatcherd.JobID, l *tail) {
	t.held.Add(l.user, -perLog-len(l.text))
	delete(t.tails, job)
}

// Sizes returns how many bytes the logs take, and how many lines MaxTotal was too small for.
func (t *Tails) Sizes() (held int, cuts uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.held.Held(), t.cuts
}
