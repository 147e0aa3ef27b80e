package contract

// Verdict says what is known about a statement that was sent to Postgres.
type Verdict uint8

// The three verdicts.
const (
	OK      Verdict = iota // it was executed and the answer arrived
	Refused                // it was certainly not executed
	Unknown                // its outcome is unknown: the connection broke before the answer
)

// String returns "ok", "refused" or "unknown".
func (v Verdict) String() string { return [...]string{"ok", "refused", "unknown"}[v] }
