package backend

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/dispatcherd/dispatcherd/claim"
	"github.com/dispatcherd/dispatcherd/internal/background"
	"github.com/dispatcherd/dispatcherd/internal/contract"
)

const (
	answerTime  = 500 * time.Millisecond // how long a caller waits for the answers of other dispatchers
	firstPause  = 30 * time.Millisecond  // between the first two reads of the answers; it doubles
	viewTime    = time.Second            // how long all callers get the same view, also that there is none
	answerAgain = 950 * time.Millisecond // no summary is written before, because the last one is still an answer
	summaryTime = 2 * time.Second        // a summary that is younger counts as an answer
)

// The bounds of a summary.
const (
	SummaryRows  = 2000    // workers, slots and types
	summaryBytes = 1 << 20 // of its text; a longer one has fewer rows
)

// Cluster shows what all dispatchers do. When a caller looks, it asks all dispatchers, at most once per second, to write their summaries
// into a table, and reads them. A dispatcher that is asked writes at most one per second, whatever the number of callers. Further reads
// follow, at most four within half a second, only if a dispatcher has not written for two seconds: mostly after the first call. It
// does not wait again for one that did not answer the last time.
type Cluster struct {
	me       func() int32
	own      func() contract.Summary
	exchange Exchange

	turn    chan struct{} // contains a value while the following are in use
	read    time.Time     // when the members were read
	wrote   time.Time     // when the summary was written
	members []contract.Member

	written, leftOut atomic.Int64
}

// Exchange writes the summary of a dispatcher, and, if ask is set, asks for those of the others and reads them. See claim.Jobs.Exchange.
type Exchange func(ctx context.Context, me int32, summary []byte, ask bool) ([]contract.Member, error)

// NewCluster returns the Cluster of a dispatcher with an id, and with a summary of its own.
func NewCluster(me func() int32, own func() contract.Summary, exchange Exchange) *Cluster {
	return &Cluster{me: me, own: own, exchange: exchange, turn: make(chan struct{}, 1)}
}

// Written returns how many summaries were written, and how many rows the last one left out.
func (c *Cluster) Written() (summaries, leftOut int64) { return c.written.Load(), c.leftOut.Load() }

// Answering returns the service that writes a summary when a dispatcher asks.
func (c *Cluster) Answering() background.Service {
	return background.Service{Name: "watch", Topics: contract.WatchAsked, Rest: 10 * time.Millisecond, Step: c.answer}
}

func (c *Cluster) answer(ctx context.Context, now background.Now) (time.Duration, error) {
	c.turn <- struct{}{}
	defer func() { <-c.turn }()
	if now.Woken == 0 || time.Since(c.wrote) < answerAgain || time.Since(c.read) < viewTime*3/2 { // its own callers make it write
		return time.Hour, nil
	}
	_, err := c.write(ctx, false)
	return time.Hour, err
}

// write writes the summary, with as many rows as the bounds allow, and asks the others.
func (c *Cluster) write(ctx context.Context, ask bool) ([]contract.Member, error) {
	s, left := c.own(), 0
	var text []byte
	for most := SummaryRows; text == nil || len(text) > summaryBytes && most > 0; most /= 2 {
		left += s.Cut(most)
		text, _ = json.Marshal(s) // numbers and texts can be encoded
	}
	c.leftOut.Store(int64(left))
	members, err := c.exchange(ctx, c.me(), text, ask)
	if err == nil {
		c.written.Add(1)
		c.wrote = time.Now()
	}
	return members, err
}

// view asks the dispatchers, or returns what they said last. It returns nil if Postgres does not answer in time. All callers wait for it
// and get the same, so it does not depend on the connections that the user of one of them may use.
func (c *Cluster) view(ask bool) []contract.Member {
	c.turn <- struct{}{}
	defer func() { <-c.turn }()
	if !ask || time.Since(c.read) < viewTime {
		return c.members
	}
	ctx, cancel := context.WithTimeout(context.Background(), answerTime)
	defer cancel()
	before, waits := c.members, true
	c.members = nil
	for pause := firstPause; waits && ctx.Err() == nil; pause *= 2 {
		members, err := c.write(ctx, true)
		if err != nil {
			break
		}
		c.members, waits = members, false
		for i := range members {
			waits = !c.complete(&members[i]) && !wasSilent(before, members[i].ID) || waits
		}
		if waits {
			background.Pause(ctx, pause)
		}
	}
	c.read = time.Now()
	return c.members
}

// complete decodes what a dispatcher has said. It reports whether the dispatcher has answered, or will not.
func (c *Cluster) complete(m *contract.Member) bool {
	m.Answered = m.ID == c.me() || m.WrittenAt != nil && m.ReadAt.Sub(*m.WrittenAt) < summaryTime
	if m.Text != nil && json.Unmarshal(m.Text, &m.Summary) != nil { // of a build with another form
		m.Answered, m.WrittenAt, m.Summary = false, nil, contract.Summary{}
	}
	m.Text = nil
	return m.Answered || !m.Lives()
}

// wasSilent reports whether a dispatcher did not answer.
func wasSilent(members []contract.Member, id int32) bool {
	return slices.ContainsFunc(members, func(m contract.Member) bool { return m.ID == id && !m.Answered })
}

// members returns the dispatchers that are in the table, or only this one, and which rows are old or missing. This one is the first, and
// has its present rows.
func (b *Backend) members(local bool) (all []contract.Member, notes []string) {
	all = []contract.Member{{ID: b.Dispatcher(), Name: b.Name, State: contract.RunningDispatcher, ReadAt: time.Now()}}
	if !local {
		read := b.Cluster.view(true)
		if read == nil {
			notes = append(notes, fmt.Sprintf("Postgres did not answer within %v: only dispatcher %s is shown", answerTime, b.Name))
		} else if len(read) == claim.MaxMembers {
			notes = append(notes, fmt.Sprintf("only the first %d dispatchers are shown", len(read)))
		}
		for _, m := range read {
			if m.ID == all[0].ID {
				all[0] = m
				continue
			}
			all, notes = append(all, m), append(notes, notesOf(&m)...)
		}
	}
	own := &all[0]
	own.Self, own.Answered, own.WrittenAt, own.Summary = true, true, &own.ReadAt, b.Summary()
	return all, notes
}

// notesOf says which rows of another dispatcher are old or missing.
func notesOf(m *contract.Member) (notes []string) {
	rows := "its rows are missing"
	if m.WrittenAt != nil {
		rows = "its rows are from " + m.WrittenAt.UTC().Format("15:04:05") + " UTC"
	}
	if !m.Answered && m.Lives() {
		notes = append(notes, fmt.Sprintf("dispatcher %s did not answer within %v; %s", m.Name, answerTime, rows))
	}
	if m.CutAt > 0 {
		notes = append(notes, fmt.Sprintf("of dispatcher %s, only %d workers, slots and types are shown: ask it with --local", m.Name, m.CutAt))
	}
	return notes
}
