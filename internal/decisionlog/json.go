package decisionlog

import (
	"bufio"
	"encoding/json"
	"io"
	"time"

	"github.com/dispatcherd/dispatcherd/actor"
	"github.com/dispatcherd/dispatcherd/internal/contract"
)

// Line is an entry as "debug bundle" exports it: one JSON object per line. Scores
// are in points, times in seconds.
type Line struct {
	At        time.Time          `json:"at"`
	Decision  string             `json:"decision"` // placed, waiting, ended
	Job       int64              `json:"job,omitempty"`
	Attempt   int                `json:"attempt,omitempty"`
	Mode      string             `json:"mode,omitempty"`
	Type      string             `json:"type,omitempty"`
	Priority  int                `json:"priority"`
	Slot      int64              `json:"slot,omitempty"`
	Worker    string             `json:"worker,omitempty"`
	Capacity  int32              `json:"capacity,omitempty"`
	SlotTypes int32              `json:"slot_types,omitempty"`
	Score     *contract.Score    `json:"score,omitempty"` // of a job that waits, only the total is known
	RunnerUp  *contract.RunnerUp `json:"runner_up,omitempty"`
	Reasons   []string           `json:"reasons,omitempty"`
	Outcome   string             `json:"outcome,omitempty"`
	Waited    *float64           `json:"waited_seconds,omitempty"`
	Ran       *float64           `json:"ran_seconds,omitempty"`
}

// Line returns the entry as it is exported.
func (e *Entry) Line() Line {
	l := Line{At: e.At.UTC(), Decision: e.Kind.String(), Job: int64(e.Job), Type: e.Type, Priority: int(e.Priority), Reasons: e.ReasonNames()}
	if e.Type != "" {
		l.Mode = e.Mode.String()
	}
	switch e.Kind {
	case actor.DecisionPlaced:
		l.Score = new(e.Terms.Points())
		l.Attempt, l.Slot, l.Worker, l.Capacity, l.SlotTypes = int(e.Attempt), int64(e.Slot), e.Worker, e.Capacity, e.SlotTypes
		l.Waited = new(contract.Seconds(e.Waited))
		l.RunnerUp = e.Second()
	case actor.DecisionWaiting:
		if e.Type != "" {
			l.Score = &contract.Score{Total: e.Score.Points()}
		}
	case actor.DecisionEnded:
		l.Attempt, l.Outcome = int(e.Attempt), e.OutcomeName()
		l.Waited, l.Ran = new(contract.Seconds(e.Waited)), new(contract.Seconds(e.Ran))
	}
	return l
}

// Second returns the best job that was considered after the placed one; nil = no other job was considered.
func (e *Entry) Second() *contract.RunnerUp {
	r := e.RunnerUp
	if r.Type == "" {
		return nil
	}
	return &contract.RunnerUp{Job: int64(r.Job), Type: r.Type, Score: r.Score.Points()}
}

// ReasonNames returns the reasons of the entry as text.
func (e *Entry) ReasonNames() (names []string) {
	for _, r := range e.Reasons.List() {
		names = append(names, string(r))
	}
	return names
}

// OutcomeName returns how the attempt, or the request, ended.
func (e *Entry) OutcomeName() string {
	if e.Answer != 0 {
		return e.Answer.String()
	}
	return e.Outcome.String()
}

// Export writes all entries, the oldest first, as JSON lines.
func (l *Log) Export(w io.Writer) error {
	out := bufio.NewWriter(w)
	encode := json.NewEncoder(out)
	for e := range l.Each {
		if err := encode.Encode(e.Line()); err != nil {
			return err
		}
	}
	return out.Flush()
}
