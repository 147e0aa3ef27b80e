package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/internal/contract"
	table "github.com/dispatcherd/dispatcherd/internal/schedule/schedulestore"
)

// fakeTable has schedules in memory, and records the calls that change something.
type fakeTable struct {
	rows  map[string]contract.Schedule
	calls []string
	err   error // of all calls but Get and List
	after int   // calls before the first one with err

	made   contract.MadeTick
	counts map[string]int
	ticks  []contract.Tick
}

func newFake(list ...contract.Schedule) *fakeTable {
	f := &fakeTable{rows: map[string]contract.Schedule{}}
	for _, v := range list {
		f.rows[v.Name] = v
	}
	return f
}

// daily is a schedule with version 1.
func daily(name string) contract.Schedule {
	v := contract.NewSchedule()
	v.Name, v.Kind, v.Spec, v.Type, v.Version, v.ReadAt = name, contract.Cron, "@daily", "pdf", 1, time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	return v
}

func (f *fakeTable) call(format string, args ...any) error {
	if len(f.calls) >= f.after && f.err != nil {
		return f.err
	}
	f.calls = append(f.calls, fmt.Sprintf(format, args...))
	return nil
}

// List returns no payloads, as the API does.
func (f *fakeTable) List(_ context.Context, after string, limit int) (list []contract.Schedule, err error) {
	for _, name := range slices.Sorted(maps.Keys(f.rows)) {
		if name > after && len(list) < limit {
			v := f.rows[name]
			v.Payload = nil
			list = append(list, v)
		}
	}
	return list, nil
}

func (f *fakeTable) Get(_ context.Context, name string) (contract.Schedule, error) {
	v, ok := f.rows[name]
	if !ok {
		return v, fmt.Errorf("schedule %q: %w", name, table.ErrNotFound)
	}
	return v, nil
}

func (f *fakeTable) Set(_ context.Context, v contract.Schedule) (bool, error) {
	old, found := f.rows[v.Name]
	if v.Version != 0 && v.Version != old.Version && (found || v.Version > 0) {
		return false, fmt.Errorf("schedule %q: %w", v.Name, table.ErrEdited)
	}
	if err := f.call("set %s", v.Name); err != nil {
		return false, err
	}
	v.Version = old.Version + 1
	f.rows[v.Name] = v
	return !found, nil
}

func (f *fakeTable) Remove(_ context.Context, name string) error {
	err := f.call("remove %s", name)
	if err == nil {
		delete(f.rows, name)
	}
	return err
}

func (f *fakeTable) RemoveVersion(ctx context.Context, name string, version int64) error {
	if f.rows[name].Version != version {
		return fmt.Errorf("schedule %q: %w", name, table.ErrEdited)
	}
	return f.Remove(ctx, name)
}

func (f *fakeTable) Pause(_ context.Context, name string) error  { return f.call("pause %s", name) }
func (f *fakeTable) Resume(_ context.Context, name string) error { return f.call("resume %s", name) }

func (f *fakeTable) Run(_ context.Context, name, key string, force bool) (contract.MadeTick, error) {
	return f.made, f.call("run %s %s %v", name, key, force)
}

func (f *fakeTable) Backfill(_ context.Context, name string, from, to time.Time, overlap string) (map[string]int, error) {
	return f.counts, f.call("backfill %s %s %s %s", name, Stamp(from), Stamp(to), overlap)
}

func (f *fakeTable) CountBackfill(_ context.Context, name string, from, to time.Time) (map[string]int, error) {
	return f.counts, f.call("count %s %s %s", name, Stamp(from), Stamp(to))
}

// output is the output of commands, and the error output.
type output struct{ out, err bytes.Buffer }

func newCommands() (*Invocation, *output) {
	var o output
	return &Invocation{Console: Console{In: strings.NewReader(""), Out: &o.out, Err: &o.err}}, &o
}

// getting is a table that calls f after each Get.
type getting struct {
	*fakeTable

	f func()
}

func (g getting) Get(ctx context.Context, name string) (contract.Schedule, error) {
	v, err := g.fakeTable.Get(ctx, name)
	g.f()
	return v, err
}

// errBroken is an error of a table.
var errBroken = errors.New("connection lost")

func applied(t *testing.T, s schedules, f applyFlags, text string) (*output, error) {
	t.Helper()
	list, err := parse([]byte(text))
	require.NoError(t, err)
	a, o := newCommands()
	return o, a.applySchedules(t.Context(), over(t, s), list, f)
}

const threeSchedules = "[a]\nspec = \"@daily\"\ntype = \"pdf\"\n[b]\nspec = \"@hourly\"\ntype = \"pdf\"\n" +
	"[c]\nspec = \"@daily\"\ntype = \"pdf\"\npayload = {page = 1}\n"

// The edits that an error left are made by the next apply, and no other ones.
func TestInterruptedApplyIsCompletedByTheNext(t *testing.T) {
	for after := range 4 {
		s := newFake(daily("b"), daily("old"))
		s.err, s.after = errBroken, after
		o, err := applied(t, s, applyFlags{prune: true, yes: true}, threeSchedules)
		require.ErrorContains(t, err, errBroken.Error())
		want := []string{
			"0 created, 0 changed, 0 removed", "1 created, 0 changed, 0 removed", "1 created, 1 changed, 0 removed",
			"2 created, 1 changed, 0 removed",
		}[after]
		require.Equal(t, "Before the error: "+want+". Repeat the command to make the edits that are left.\n", o.err.String())
		s.err = nil
		_, err = applied(t, s, applyFlags{prune: true, yes: true}, threeSchedules)
		require.NoError(t, err)
		require.Equal(t, []string{"set a", "set b", "set c", "remove old"}, s.calls, "each edit is made once, removals last")
		o, err = applied(t, s, applyFlags{prune: true, yes: true}, threeSchedules)
		require.NoError(t, err)
		require.Equal(t, "There is no difference.\n", o.err.String())
	}
}

// An apply undoes no edit that was made after its comparison.
func TestApplyEndsAtAConcurrentEdit(t *testing.T) {
	edited := func(name string) contract.Schedule {
		v := daily(name)
		v.Version, v.Priority = 2, 5
		return v
	}
	for _, c := range []struct {
		name string
		edit func(*fakeTable)
	}{
		{"a", func(s *fakeTable) { s.rows["a"] = edited("a") }}, // created
		{"b", func(s *fakeTable) { s.rows["b"] = edited("b") }},
		{"b", func(s *fakeTable) { delete(s.rows, "b") }},
		{"old", func(s *fakeTable) { s.rows["old"] = edited("old") }},
	} {
		s := newFake(daily("b"), daily("old"))
		list, err := parse([]byte(threeSchedules))
		require.NoError(t, err)
		d, _, err := compare(t.Context(), over(t, s), list, true)
		require.NoError(t, err)
		c.edit(s)
		want := s.rows[c.name]
		_, err = d.execute(t.Context(), over(t, s))
		require.True(t, isConflict(err), "%v", err)
		require.Equal(t, want, s.rows[c.name])
	}
}

// The schedules of the file are read with their payloads. One that was deleted is created.
func TestApplyReadsPayloadsOfTheFile(t *testing.T) {
	c := daily("c")
	c.Payload = []byte(`{"page":1}`)
	s := newFake(c, daily("z"))
	o, err := applied(t, s, applyFlags{dryRun: true}, threeSchedules)
	require.NoError(t, err)
	require.NotContains(t, o.out.String(), "payload")
	require.Empty(t, s.calls, "--dry-run")
	list, err := parse([]byte(threeSchedules))
	require.NoError(t, err)
	delete(s.rows, "c")
	d, _, err := compare(t.Context(), over(t, s), list, false)
	require.NoError(t, err)
	require.Equal(t, "3 created, 0 changed, 0 removed", d.String(), "without --prune")
}

// many is a table with n schedules.
type many struct {
	*fakeTable

	n int
}

func (m many) List(_ context.Context, after string, limit int) (list []contract.Schedule, err error) {
	first := 0
	if after != "" {
		_, _ = fmt.Sscanf(after, "s%d", &first)
		first++
	}
	for i := first; i < min(first+limit, m.n); i++ {
		list = append(list, daily(fmt.Sprintf("s%06d", i)))
	}
	return list, nil
}
