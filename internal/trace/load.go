package trace

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"github.com/dispatcherd/dispatcherd"
)

// The files of a trace.
const (
	jobsFile   = "jobs.csv"
	slotsFile  = "slots.csv"
	eventsFile = "slot_events.csv" // optional
)

var (
	jobColumns = []string{"job_id", "arrival_seconds", "type", "priority", "mode", "duration_seconds"}
	// expectedColumn follows jobColumns if some job has an expected duration.
	expectedColumn = "expected_seconds"
	slotColumns    = []string{"slot_id", "worker", "types"}
	eventColumns   = []string{"seconds", "slot_id", "event"}
	planColumns    = []string{"job_id", "start_ms", "slot_id"}
)

// Load reads a trace from a folder: jobs.csv, slots.csv and, if slots go
// online and offline, slot_events.csv. Lines may be in any order. Load returns
// an error for the first invalid value. The error names the file, the line,
// the column, the value, and the allowed values.
func Load(dir string) (*Trace, error) {
	t := &Trace{Name: filepath.Base(filepath.Clean(dir))}
	if err := loadSlots(t, filepath.Join(dir, slotsFile)); err != nil {
		return nil, fmt.Errorf("load trace: %w", err)
	}
	if err := loadEvents(t, filepath.Join(dir, eventsFile)); err != nil {
		return nil, fmt.Errorf("load trace: %w", err)
	}
	if err := loadJobs(t, filepath.Join(dir, jobsFile)); err != nil {
		return nil, fmt.Errorf("load trace: %w", err)
	}
	if err := t.Check(); err != nil {
		return nil, fmt.Errorf("load trace %s: %w", dir, err)
	}
	return t, nil
}

func loadSlots(t *Trace, path string) error {
	seen := map[int64]bool{}
	return readTable(path, slotColumns, func(r *row) {
		s := Slot{
			ID:     r.integer(0, 1, math.MaxInt64),
			Worker: r.text(1, dispatcherd.MaxWorkerLength),
			Types:  splitTypes(r.fields[2]),
		}
		slices.Sort(s.Types)
		switch {
		case seen[s.ID]:
			r.reject(0, "an id that no earlier line has")
		case len(s.Types) > dispatcherd.MaxSlotTypes:
			r.reject(2, fmt.Sprintf("at most %d types", dispatcherd.MaxSlotTypes))
		case s.Types[0] == "":
			r.reject(2, "types of at least one byte each, separated by |")
		case slices.ContainsFunc(s.Types, func(typ string) bool { return len(typ) > dispatcherd.MaxTypeLength }):
			r.reject(2, fmt.Sprintf("types of at most %d bytes each, separated by |", dispatcherd.MaxTypeLength))
		case len(slices.Compact(slices.Clone(s.Types))) != len(s.Types):
			r.reject(2, "each type once")
		}
		seen[s.ID] = true
		t.Slots = append(t.Slots, s)
	})
}

func loadEvents(t *Trace, path string) error {
	known := map[int64]bool{}
	for _, s := range t.Slots {
		known[s.ID] = true
	}
	err := readTable(path, eventColumns, func(r *row) {
		e := SlotEvent{
			AtMS: r.seconds(0),
			Slot: r.integer(1, 1, math.MaxInt64),
			Kind: EventKind(r.choice(2, Drain.String(), Register.String())),
		}
		if !known[e.Slot] {
			r.reject(1, "a slot of "+slotsFile)
		}
		t.Events = append(t.Events, e)
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil && len(t.Events) == 0 {
		return fmt.Errorf("%s has no event, so no slot would ever be online; without the file all slots are online from the start", path)
	}
	return err
}

func loadJobs(t *Trace, path string) error {
	supported := map[string]bool{}
	for _, typ := range t.Types() {
		supported[typ] = true
	}
	seen := map[int64]bool{}
	return readTable(path, jobColumns, func(r *row) {
		j := Job{
			ID:         r.integer(0, 1, math.MaxInt64),
			ArrivalMS:  r.seconds(1),
			Type:       r.text(2, dispatcherd.MaxTypeLength),
			Priority:   dispatcherd.Priority(r.integer(3, int64(dispatcherd.MinPriority), int64(dispatcherd.MaxPriority))),
			Mode:       dispatcherd.Mode(r.choice(4, dispatcherd.Queued.String(), dispatcherd.OnDemand.String())),
			DurationMS: r.seconds(5),
		}
		if len(r.fields) > len(jobColumns) && r.fields[6] != "" {
			var err error
			most := dispatcherd.MaxExpected.Milliseconds()
			if j.ExpectedMS, err = parseSeconds(r.fields[6]); err != nil || j.ExpectedMS < 1 || j.ExpectedMS > most {
				r.reject(6, "seconds as digits with at most three decimals, more than 0 and at most "+formatSeconds(most)+", or nothing")
			}
		}
		switch {
		case seen[j.ID]:
			r.reject(0, "an id that no earlier line has")
		case !supported[j.Type]:
			r.reject(2, "a type that a slot of "+slotsFile+" supports: "+shorten(strings.Join(t.Types(), ", "), 200))
		case j.DurationMS < 1:
			r.reject(5, "more than 0 seconds")
		}
		seen[j.ID] = true
		t.Jobs = append(t.Jobs, j)
	}, expectedColumn)
}

// LoadSchedule reads a schedule with the columns job_id, start_ms and
// slot_id. Its lines may be in any order. The result is ordered by job.
func LoadSchedule(path string) ([]Placement, error) {
	var ps []Placement
	seen := map[int64]bool{}
	err := readTable(path, planColumns, func(r *row) {
		p := Placement{
			Job:     r.integer(0, 1, math.MaxInt64),
			StartMS: r.integer(1, 0, maxMS),
			Slot:    r.integer(2, 1, math.MaxInt64),
		}
		if seen[p.Job] {
			r.reject(0, "an id that no earlier line has")
		}
		seen[p.Job] = true
		ps = append(ps, p)
	})
	if err != nil {
		return nil, fmt.Errorf("load schedule: %w", err)
	}
	sortPlacements(ps)
	return ps, nil
}
