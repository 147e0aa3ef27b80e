package schedule

import (
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"
	_ "time/tzdata" // for hosts without a time zone database

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/jsontext"
	"github.com/dispatcherd/dispatcherd/internal/limits/permits"
	"github.com/dispatcherd/dispatcherd/internal/schedule/cron"
)

// rule is a cron expression in a time zone. Schedules with equal texts share it.
type rule struct {
	name       ruleName
	users      int // schedules of the plan
	expression cron.Expression
	zone       *time.Location
}

// next returns the first occasion after an instant, in microseconds, or never.
func (r *rule) next(after int64) int64 {
	at, ok := r.expression.Next(time.UnixMicro(after), r.zone)
	if !ok {
		return never
	}
	return at.UnixMicro()
}

// zones are the time zones in use, by name. Schedules with the same zone share it.
type zones map[string]*time.Location

// rule reads the spec and the time zone of a cron schedule.
func (z zones) rule(spec, zone string) (*rule, error) {
	expression, err := cron.Parse(spec)
	if err != nil {
		if instead := insteadOf(spec); instead != "" {
			return nil, fmt.Errorf("spec %q: not a cron expression here: use %s", spec, instead)
		}
		return nil, fmt.Errorf("spec: %w", err)
	}
	if z[zone] == nil {
		location, err := time.LoadLocation(zone)
		if err != nil || zone == "" || zone == "Local" {
			return nil, fmt.Errorf("time_zone %q: must be a name of the time zone database, for example %q", zone, "Europe/Berlin")
		}
		z[zone] = location
	}
	return &rule{ruleName{spec, zone}, 0, expression, z[zone]}, nil
}

// extensions are what other programs accept as a cron expression, by the beginning of the text, and what to use here.
var extensions = []struct{ begin, instead string }{
	{"@EVERY", `kind "interval", for example with every "10m"`},
	{"@REBOOT", `kind "startup", for example with once "start"`},
	{"CRON_TZ=", `time_zone, for example "Europe/Berlin", and a spec without it, for example "30 2 * * *"`},
	{"TZ=", `time_zone, for example "Europe/Berlin", and a spec without it, for example "30 2 * * *"`},
}

// insteadOf says what to use in the place of an extension of other programs; empty = the text is none.
func insteadOf(spec string) string {
	for _, e := range extensions {
		if strings.HasPrefix(strings.ToUpper(strings.TrimSpace(spec)), e.begin) {
			return e.instead
		}
	}
	return ""
}

// validName is the constraint on names in the table.
var validName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`)

// bounds are the limits of durations in the table.
const (
	minEvery   = time.Second
	maxEvery   = 3660 * 24 * time.Hour
	maxJitter  = 24 * time.Hour
	maxCatchUp = 366 * 24 * time.Hour
	maxMost    = 10_000
)

// Check returns an error if a schedule cannot run. The error names the column, its value, the
// rule and an example. The table accepts some of these values, and the plan reports them.
func Check(s *contract.Schedule) error {
	if err := CheckName(s.Name); err != nil {
		return err
	}
	if err := dispatcherd.CheckType(s.Type); err != nil {
		return fmt.Errorf("type %q: %w, for example %q", s.Type, err, "pdf")
	}
	if err := CheckOverlap(s.Overlap); err != nil {
		return err
	}
	if err := checkKeys(s); err != nil {
		return err
	}
	for _, n := range []struct {
		column             string
		value              *int
		low, high, example int
	}{
		{"priority", new(int(s.Priority)), int(dispatcherd.MinPriority), int(dispatcherd.MaxPriority), 5},
		{"max_attempts", &s.MaxAttempts, 1, math.MaxInt16, 5},
		{"timeout_ms", s.TimeoutMS, 1, math.MaxInt32, 60000}, {"expected_ms", s.ExpectedMS, 1, math.MaxInt32, 60000},
	} {
		if n.value != nil && (*n.value < n.low || *n.value > n.high) {
			return fmt.Errorf("%s %d: must be from %d to %d, for example %d", n.column, *n.value, n.low, n.high, n.example)
		}
	}
	if len(s.Payload) > 0 {
		if err := jsontext.CheckPayload(s.Payload); err != nil { // a payload belongs to the users, so no error contains it
			return fmt.Errorf("payload: %w, for example %s", err, examplePayload)
		}
	}
	return CheckPlan(&s.SchedulePlan)
}

// CheckName checks the name of a schedule.
func CheckName(name string) error {
	if !validName.MatchString(name) {
		return fmt.Errorf(
			"name %q: must be 1 to 128 letters, digits, dots, underscores or hyphens and begin with a letter or digit, for example %q",
			name,
			"nightly-report",
		)
	}
	return nil
}

// checkKeys checks the keys of the jobs. A startup-worker schedule has none, because its runs do not wait for permits.
func checkKeys(s *contract.Schedule) error {
	if s.Keys == "" {
		return nil
	}
	if s.Kind == contract.StartupWorker {
		return fmt.Errorf(
			"keys %q: a schedule of kind %s has none: remove them, or choose another kind, for example kind \"startup\" with once \"start\"",
			s.Keys,
			s.Kind,
		)
	}
	_, err := permits.Parse(s.Keys)
	return err
}

// CheckOverlap checks an overlap policy.
func CheckOverlap(policy string) error {
	switch policy {
	case contract.Skip, contract.QueueOne, contract.QueueAll, contract.CancelOther, contract.AllowAll:
		return nil
	}
	return fmt.Errorf("overlap %q: must be skip, queue_one, queue_all, cancel_other or allow_all, for example %q", policy, contract.Skip)
}

// CheckPlan checks the columns that decide when a schedule runs.
func CheckPlan(s *contract.SchedulePlan) error {
	if err := checkColumns(s); err != nil || s.Kind != contract.Cron {
		return err
	}
	_, err := zones{}.rule(s.Spec, s.TimeZone)
	return err
}

// checkColumns checks all columns except the spec and the time zone.
func checkColumns(s *contract.SchedulePlan) error {
	if err := checkKind(s); err != nil {
		return err
	}
	for _, d := range []struct {
		column      string
		value, high time.Duration
	}{
		{"jitter", time.Duration(s.Jitter), maxJitter}, {"catch_up", time.Duration(s.CatchUp), maxCatchUp},
	} {
		if d.value < 0 || d.value > d.high {
			return fmt.Errorf("%s %s: must be from 0s to %s, for example 10m", d.column, d.value, d.high)
		}
	}
	if s.CatchUpMost < 0 || s.CatchUpMost > maxMost {
		return fmt.Errorf("catch_up_most %d: must be from 0 to %d, for example 1", s.CatchUpMost, maxMost)
	}
	for column, at := range map[string]*time.Time{"starts_at": s.StartsAt, "ends_at": s.EndsAt} { // order-free: either error is right
		if at != nil && (at.UTC().Year() < 1970 || at.UTC().Year() >= 2200) {
			return fmt.Errorf("%s %s: must be from 1970 to 2199, for example 2030-01-31T00:00:00Z", column, at.Format(time.RFC3339))
		}
	}
	if s.StartsAt != nil && s.EndsAt != nil && !s.EndsAt.After(*s.StartsAt) {
		return fmt.Errorf("ends_at %s: must be after starts_at %s, for example 2199-12-31T00:00:00Z",
			s.EndsAt.Format(time.RFC3339), s.StartsAt.Format(time.RFC3339))
	}
	return nil
}

// checkKind checks the kind and the columns that belong to it.
func checkKind(s *contract.SchedulePlan) error {
	switch s.Kind {
	case contract.Cron, contract.Interval, contract.Startup, contract.StartupWorker:
	default:
		return fmt.Errorf("kind %q: must be cron, interval, startup or startup-worker, for example %q", s.Kind, contract.Cron)
	}
	for _, c := range []struct {
		column, value, kind, example string
		given                        bool
	}{
		{"spec", strconv.Quote(s.Spec), contract.Cron, "30 2 * * *", s.Spec != ""},
		{"every", time.Duration(s.Every).String(), contract.Interval, "10m", s.Every != 0},
		{"once", strconv.Quote(s.Once), contract.Startup, "start", s.Once != ""},
	} {
		if c.given && s.Kind != c.kind {
			return fmt.Errorf("%[1]s %[2]s: only a schedule of kind %[3]s has it, and this one is of kind %[4]q: remove it "+
				"(with 'schedule set', write %[1]s=), or set both, for example kind %[3]q with %[1]s %[5]q",
				c.column, c.value, c.kind, s.Kind, c.example)
		}
	}
	switch s.Kind {
	case contract.Interval:
		if every := time.Duration(s.Every); every < minEvery || every > maxEvery {
			return fmt.Errorf("every %s: must be from %s to %s, for example 10m", every, minEvery, maxEvery)
		}
	case contract.Startup:
		if s.Once != contract.OncePerStart && s.Once != contract.OncePerVersion && s.Once != contract.OnceEver {
			return fmt.Errorf("once %q: must be start, version or ever, for example %q", s.Once, contract.OncePerStart)
		}
	}
	return nil
}

// errNoVersion is the reason why a startup schedule with once = version does not run.
var errNoVersion = errors.New(
	"once \"version\": the dispatchers know no version of the application: start them with --app-version, for example --app-version 1.4.2",
)

// maxAppVersion bounds a version of the application in bytes: an occasion has at most 256.
const maxAppVersion = 256 - len(versionPrefix)

// CheckAppVersion returns an error if the version of the application cannot be a part of an occasion. The empty text
// means that it is unknown.
func CheckAppVersion(version string) error {
	if len(version) > maxAppVersion || strings.ContainsFunc(version, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return fmt.Errorf("must be at most %d letters, digits and punctuation characters of ASCII, for example 1.4.2", maxAppVersion)
	}
	return nil
}

// CronOccasion returns the name of an occasion of a cron schedule.
func CronOccasion(at time.Time) string { return at.UTC().Format(time.RFC3339) }

// missedOccasion returns the name of the tick of missed occasions of which the last one is at an
// instant. It differs from that of the occasion, so that a backfill can run each of them.
func missedOccasion(at int64) string { return "missed:" + CronOccasion(time.UnixMicro(at)) }

// jittered adds the jitter of an occasion. It depends only on the schedule and the occasion, so
// it is equal on all hosts.
func jittered(at, jitter, id int64, occasion string) int64 {
	if jitter <= 0 {
		return at
	}
	h := fnv.New64a()
	_, _ = fmt.Fprintf(h, "%d %s", id, occasion) // a hash returns no error
	x := h.Sum64()
	x ^= x >> 33 // FNV alone spreads texts that differ in their last digits badly
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	return at + int64(x%uint64(jitter))
}

// occurrence says when a schedule without planned occasions runs.
func occurrence(s *contract.SchedulePlan) string {
	switch {
	case s.Kind == contract.Interval:
		return fmt.Sprintf("%s after the end of its last run", time.Duration(s.Every))
	case s.Kind == contract.StartupWorker:
		return "once in each new worker process"
	case s.Once == contract.OncePerVersion:
		return "once per version of the application"
	case s.Once == contract.OnceEver:
		return "once"
	}
	return "once per start of the cluster"
}

// Occasions returns the occasions of a cron schedule after an instant and up to another one,
// at most a number of them, without regard to jitter, pauses and the high-water mark.
func Occasions(s *contract.SchedulePlan, after, until time.Time, most int) ([]time.Time, error) {
	_, list, err := ruleAndOccasions(s, after, until, most)
	return list, err
}

// ruleAndOccasions returns the result of Occasions and the rule.
func ruleAndOccasions(s *contract.SchedulePlan, after, until time.Time, most int) (r *rule, list []time.Time, err error) {
	if s.Kind != contract.Cron {
		return nil, nil, fmt.Errorf("schedule %q is of kind %s and runs %s: only schedules of kind cron have planned occasions",
			s.Name, s.Kind, occurrence(s))
	}
	if r, err = (zones{}).rule(s.Spec, s.TimeZone); err != nil {
		return nil, nil, err
	}
	e := entry{rule: r, ends: never}
	e.bound(s)
	for at := e.next(max(after.UnixMicro(), e.starts-1)); at <= until.UnixMicro() && at != never && len(list) < most; at = e.next(at) {
		list = append(list, time.UnixMicro(at).UTC())
	}
	return r, list, nil
}

// Upcoming returns the next occasions of a cron schedule after an instant.
func Upcoming(s *contract.SchedulePlan, after time.Time, n int) (list []contract.Occasion, err error) {
	r, all, err := ruleAndOccasions(s, after, time.UnixMicro(never), n)
	for _, at := range all {
		run := jittered(at.UnixMicro(), time.Duration(s.Jitter).Microseconds(), s.ID, CronOccasion(at))
		list = append(list,
			contract.Occasion{At: at, Local: at.In(r.zone), RunAt: time.UnixMicro(run).UTC(), Note: r.expression.Note(at, r.zone).String()})
	}
	return list, err
}
