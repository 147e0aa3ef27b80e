package contract

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/jsontext"
	"github.com/dispatcherd/dispatcherd/internal/timing"
)

// Kinds of schedules.
const (
	Cron          = "cron"
	Interval      = "interval"
	Startup       = "startup"
	StartupWorker = "startup-worker"
)

// Values of SchedulePlan.Once.
const (
	OncePerStart   = "start"   // once per start of the cluster
	OncePerVersion = "version" // once per version of the application
	OnceEver       = "ever"
)

// Overlap policies: what becomes of a tick while runs of its schedule have not ended.
const (
	Skip        = "skip"
	QueueOne    = "queue_one"
	QueueAll    = "queue_all"
	CancelOther = "cancel_other"
	AllowAll    = "allow_all"
)

// Outcomes of ticks. Exists, Changed, Locked, Refused and New are answers about occasions that got no tick.
const (
	TickRun     = "run"
	TickQueued  = "queued"
	TickSkipped = "skipped"
	TickMissed  = "missed"
	TickExists  = "exists"  // made before, or at or before the high-water mark
	TickChanged = "changed" // the schedule was edited, paused or deleted
	TickLocked  = "locked"  // another session has locked the schedule, or there was no time
	TickRefused = "refused" // Postgres rejects the tick or its job
	TickNew     = "new"     // of a dry run: the occasion has no tick
)

// Duration is a duration that JSON and TOML write as text, such as "1h30m".
type Duration time.Duration

// MarshalText returns the duration as Go writes it.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// String returns the duration with its days and without what is zero, such as "7d", "1d12h", "10m" or "1m30s".
func (d Duration) String() string {
	const day = 24 * time.Hour
	days, rest := time.Duration(d)/day, time.Duration(d)%day
	text := timing.Span(rest)
	switch {
	case days == 0:
		return text
	case rest == 0:
		text = ""
	}
	return fmt.Sprintf("%dd%s", days, text)
}

// ParseDuration reads a duration as Go writes it. It may begin with a whole number of days (24 h), as in "7d" or "1d12h".
func ParseDuration(text string) (time.Duration, error) {
	days, rest, found := strings.Cut(text, "d")
	n, err := strconv.ParseUint(days, 10, 16)
	if !found || err != nil {
		return time.ParseDuration(text)
	}
	d, err := time.ParseDuration(cmp.Or(rest, "0"))
	return time.Duration(n)*24*time.Hour + d, err
}

// UnmarshalText reads a duration such as "90s".
func (d *Duration) UnmarshalText(text []byte) error {
	v, err := ParseDuration(string(text))
	if err != nil {
		return fmt.Errorf("duration %q: must be a number with a unit (s, m, h, d), for example %q", jsontext.Excerpt(string(text)), "1h30m")
	}
	*d = Duration(v)
	return nil
}

// SchedulePlan are the columns of a schedule that decide when it runs.
type SchedulePlan struct {
	ID          int64      `json:"id"`
	Name        string     `json:"name"`
	Kind        string     `json:"kind" enum:"cron,interval,startup,startup-worker"`
	Spec        string     `json:"spec,omitempty"`  // of a cron schedule: the expression
	Every       Duration   `json:"every,omitempty"` // of an interval: from the end of a run to the next one
	TimeZone    string     `json:"time_zone"`
	Jitter      Duration   `json:"jitter,omitempty"` // most by which run_at is later than the occasion
	StartsAt    *time.Time `json:"starts_at,omitempty"`
	EndsAt      *time.Time `json:"ends_at,omitempty"`                        // no occasion at or after it
	Once        string     `json:"once,omitempty" enum:"start,version,ever"` // of a startup schedule
	CatchUp     Duration   `json:"catch_up"`                                 // how late a missed occasion may still run
	CatchUpMost int        `json:"catch_up_most"`
	Paused      bool       `json:"paused"`
	Error       string     `json:"error,omitempty"` // why the schedule does not run; the controller sets it
	// Number of the edit. In a body: replace the schedule only if it has this version; absent: any or none; -1: only a new schedule.
	Version int64     `json:"version"`
	Since   time.Time `json:"since"` // no earlier occasion is planned
}

// NoVersion is the version of a schedule or limit that must not exist.
const NoVersion int64 = -1

// Schedule is a row of the table schedules. ID, Error, Version, Since, CreatedAt, Handled and ReadAt are read only.
type Schedule struct {
	SchedulePlan

	Type        string               `json:"type" required:"true"` // of the jobs
	Payload     json.RawMessage      `json:"payload,omitempty"`    // of the jobs: any JSON
	Priority    dispatcherd.Priority `json:"priority"`
	MaxAttempts int                  `json:"max_attempts"`
	TimeoutMS   *int                 `json:"timeout_ms,omitempty"`
	// how long an attempt probably takes
	ExpectedMS *int   `json:"expected_ms,omitempty" minimum:"1"`
	Keys       string `json:"keys,omitempty"` // of the jobs
	// what becomes of a tick while runs of the schedule have not ended
	Overlap   string     `json:"overlap" enum:"skip,queue_one,queue_all,cancel_other,allow_all"`
	CreatedAt time.Time  `json:"created_at"`
	Handled   *time.Time `json:"handled,omitempty"` // of a cron schedule: all occasions up to then are handled
	ReadAt    time.Time  `json:"read_at,omitzero"`  // when the schedule was read, by the clock of Postgres
	// read only: in the answer to a change, why jobs cannot run now, or never can
	Warnings []string `json:"warnings,omitempty" db:"-"`
}

// After returns the instant after which the next occasion of a cron schedule is: when it was read, or the high-water
// mark, which is later after the database clock was set back.
func (s *Schedule) After() time.Time {
	if s.Handled != nil && s.Handled.After(s.ReadAt) {
		return *s.Handled
	}
	return s.ReadAt
}

// NewSchedule returns a schedule with the defaults of the table.
func NewSchedule() Schedule {
	s := Schedule{SchedulePlan: SchedulePlan{CatchUp: Duration(time.Hour), CatchUpMost: 1}, MaxAttempts: 5}
	return s.WithDefaults()
}

// WithDefaults returns a schedule with the defaults of the table in the place of empty texts. The
// defaults of numbers are set only by [NewSchedule], because zero is a value, too.
func (s Schedule) WithDefaults() Schedule {
	s.Kind = cmp.Or(s.Kind, Cron)
	s.TimeZone = cmp.Or(s.TimeZone, "UTC")
	s.Overlap = cmp.Or(s.Overlap, Skip)
	if len(s.Payload) == 0 {
		s.Payload = []byte("{}")
	}
	return s
}

// MadeTick is the outcome of a tick.
type MadeTick struct {
	Outcome string `json:"outcome"` // TickRun and so on; empty = the dispatcher is not the controller
	Job     int64  `json:"job,omitempty"`
	Earlier string `json:"earlier,omitempty"` // of TickExists, on request: the outcome of the tick that exists
	Err     error  `json:"-"`                 // of TickRefused
}

// Occasion is an occasion of a cron schedule for display.
type Occasion struct {
	At    time.Time `json:"at"`             // UTC
	Local time.Time `json:"local"`          // in the time zone of the schedule
	RunAt time.Time `json:"run_at"`         // run_at of the job: At and the jitter
	Note  string    `json:"note,omitempty"` // about daylight saving time
}

// Tick is what became of an occasion of a schedule.
type Tick struct {
	Occasion   string             `json:"occasion"`
	Outcome    string             `json:"outcome" enum:"run,queued,skipped,missed"`
	MadeAt     time.Time          `json:"made_at"`
	PlannedAt  *time.Time         `json:"planned_at,omitempty"`
	RunAt      *time.Time         `json:"run_at,omitempty"`
	Job        *dispatcherd.JobID `json:"job,omitempty"`
	Missed     int                `json:"missed,omitempty"` // of a missed tick: the occasions that it stands for
	Reason     string             `json:"reason,omitempty"`
	Status     string             `json:"status,omitempty"` // of the job; empty without a job, and after its retention
	StartedAt  *time.Time         `json:"started_at,omitempty"`
	FinishedAt *time.Time         `json:"finished_at,omitempty"`
}
