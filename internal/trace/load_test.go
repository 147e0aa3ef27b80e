package trace

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
)

const (
	goodSlots  = "slot_id,worker,types\n2,w-b,excel|pdf\n1,w-a,pdf\n"
	goodEvents = "seconds,slot_id,event\n0,1,register\n0.5,2,register\n30,2,drain\n30,1,drain\n30,1,register\n"
	goodJobs   = "job_id,arrival_seconds,type,priority,mode,duration_seconds\n" +
		"7,2144.25,pdf,10,queued,0.001\n3,1.5,excel,0,on_demand,12\n2,1.5,pdf,5,on_demand,12.340\n"
)

// folder writes the files of a trace; an empty text means no file.
func folder(t *testing.T, jobs, slots, events string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{jobsFile: jobs, slotsFile: slots, eventsFile: events} {
		if text != "" {
			require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
		}
	}
	return dir
}

func TestLoadOrdersWhatItReads(t *testing.T) {
	dir := folder(t, goodJobs, goodSlots, goodEvents)
	loaded, err := Load(dir)
	require.NoError(t, err)
	require.Equal(t, &Trace{
		Name: filepath.Base(dir),
		Jobs: []Job{
			{ID: 2, ArrivalMS: 1500, Type: "pdf", Priority: 5, Mode: dispatcherd.OnDemand, DurationMS: 12_340},
			{ID: 3, ArrivalMS: 1500, Type: "excel", Priority: 0, Mode: dispatcherd.OnDemand, DurationMS: 12_000},
			{ID: 7, ArrivalMS: 2_144_250, Type: "pdf", Priority: 10, Mode: dispatcherd.Queued, DurationMS: 1},
		},
		Slots: []Slot{{ID: 1, Worker: "w-a", Types: []string{"pdf"}}, {ID: 2, Worker: "w-b", Types: []string{"excel", "pdf"}}},
		Events: []SlotEvent{
			{0, 1, Register}, {500, 2, Register}, {30_000, 1, Drain}, {30_000, 2, Drain}, {30_000, 1, Register},
		},
	}, loaded)
}

func TestTraceSurvivesWriteAndLoad(t *testing.T) {
	for name, events := range map[string]string{"slots come and go": goodEvents, "slots stay": ""} {
		t.Run(name, func(t *testing.T) {
			slots := strings.ReplaceAll(goodSlots, "w-b", "\"a \"\"quoted\"\", name \"")
			loaded, err := Load(folder(t, goodJobs, slots, events))
			require.NoError(t, err)
			dir := folder(t, "", "", goodEvents) // a file of an earlier trace
			require.NoError(t, loaded.Write(dir))
			again, err := Load(dir)
			require.NoError(t, err)
			again.Name = loaded.Name
			require.Equal(t, loaded, again)
		})
	}
}

// Each case replaces one text in one file and states what the error must contain.
func TestErrorOfLoadNamesThePlaceAndTheDefect(t *testing.T) {
	for _, c := range []struct{ file, old, new, want string }{
		{jobsFile, "7,2144.25,pdf,10", "7,2144.25,pdf,11", `jobs.csv line 2, column 15: priority is "11", allowed: an integer from 0 to 10`},
		{jobsFile, "7,2144.25", "7,-1", `jobs.csv line 2, column 3: arrival_seconds is "-1", allowed: seconds as digits`},
		{jobsFile, "2144.25", "1e3", `arrival_seconds is "1e3"`},
		{jobsFile, "2144.25", "0.0001", `arrival_seconds is "0.0001"`},
		{jobsFile, "2144.25", ".5", `arrival_seconds is ".5"`},
		{jobsFile, "2144.25", "99999999999", `arrival_seconds is "99999999999"`},
		{jobsFile, "excel", "word", `jobs.csv line 3, column 7: type is "word", allowed: a type that a slot of slots.csv supports: excel, pdf`},
		{jobsFile, "queued", "batch", `mode is "batch", allowed: queued or on_demand`},
		{jobsFile, "0.001", "0", `duration_seconds is "0", allowed: more than 0 seconds`},
		{jobsFile, "\n2,", "\n3,", `jobs.csv line 4, column 1: job_id is "3", allowed: an id that no earlier line has`},
		{jobsFile, "\n2,", "\n-2,", `job_id is "-2", allowed: an integer from 1 to`},
		{jobsFile, ",12\n", "\n", `jobs.csv line 3 has 5 fields, it must have 6: job_id,arrival_seconds`},
		{jobsFile, "arrival_seconds", "arrival", `jobs.csv line 1 is "job_id,arrival,type`},
		{jobsFile, "7,2144", "\"7,2144", `jobs.csv: `},
		{slotsFile, "excel|pdf", "pdf|pdf", `slots.csv line 2, column 7: types is "pdf|pdf", allowed: each type once`},
		{slotsFile, "excel|pdf", "pdf|", `types of at least one byte each`},
		{slotsFile, "excel|pdf", "excel|" + strings.Repeat("x", 129), `types of at most 128 bytes each`},
		{slotsFile, "w-a", "", `slots.csv line 3, column 3: worker is "", allowed: 1 to 128 bytes of text`},
		{slotsFile, "1,w-a", "2,w-a", `slot_id is "2", allowed: an id that no earlier line has`},
		{eventsFile, "0.5,2", "0.5,4", `slot_events.csv line 3, column 5: slot_id is "4", allowed: a slot of slots.csv`},
		{eventsFile, "2,drain", "2,leave", `event is "leave", allowed: drain or register`},
		{eventsFile, "0.5,2,register\n", "", `at 30 s slot 2 gets the event drain, but it is off line then`},
		{eventsFile, "30,1,drain\n", "", `at 30 s slot 1 gets the event register, but it is on line then`},
		{eventsFile, "0.5,2,register", "30,2,register", `at 30 s slot 2 gets the event drain, but it is off line then`},
		{
			eventsFile, "30,2,drain", "1.5,2,drain",
			`job 3 of type excel arrives at 1.5 s, but the last slot that supports it goes offline at 1.5 s`,
		},
		{eventsFile, goodEvents[strings.Index(goodEvents, "\n")+1:], "", `slot_events.csv has no event`},
	} {
		t.Run(c.want, func(t *testing.T) {
			texts := map[string]string{jobsFile: goodJobs, slotsFile: goodSlots, eventsFile: goodEvents}
			require.Contains(t, texts[c.file], c.old)
			texts[c.file] = strings.Replace(texts[c.file], c.old, c.new, 1)
			_, err := Load(folder(t, texts[jobsFile], texts[slotsFile], texts[eventsFile]))
			require.ErrorContains(t, err, c.want)
		})
	}
}

func TestLoadChecksExpectedSeconds(t *testing.T) {
	with := func(expected string) error {
		lines := strings.Split(strings.TrimSuffix(goodJobs, "\n"), "\n")
		for i := range lines {
			lines[i] += ","
		}
		lines[0] += expectedColumn
		lines[1] += expected
		_, err := Load(folder(t, strings.Join(lines, "\n")+"\n", goodSlots, goodEvents))
		return err
	}
	for _, good := range []string{"", "0.001", "2147483.647"} {
		require.NoError(t, with(good), good)
	}
	for _, bad := range []string{"0", "2147483.648", "1h", "-1"} {
		require.ErrorContains(t, with(bad), `expected_seconds is "`+bad+`", allowed: `, bad)
	}
}

func TestLoadNeedsJobsAndSlots(t *testing.T) {
	_, err := Load(folder(t, goodJobs, "", ""))
	require.ErrorIs(t, err, os.ErrNotExist)
	require.ErrorContains(t, err, slotsFile)
	_, err = Load(folder(t, "", goodSlots, ""))
	require.ErrorIs(t, err, os.ErrNotExist)
	_, err = Load(folder(t, strings.Join(jobColumns, ",")+"\n", goodSlots, ""))
	require.ErrorContains(t, err, "there is no job")
	_, err = Load(folder(t, goodJobs, "\n", ""))
	require.ErrorContains(t, err, "slots.csv is empty, its first line must be slot_id,worker,types")
}

func TestScheduleSurvivesWriteAndLoad(t *testing.T) {
	path := filepath.Join(t.TempDir(), "schedule.csv")
	want := []Placement{{Job: 1, StartMS: 24_943_000, Slot: 15}, {Job: 2, StartMS: 7, Slot: 1}}
	f, err := os.Create(path)
	require.NoError(t, err)
	require.NoError(t, WriteSchedule(f, want))
	require.NoError(t, f.Close())
	got, err := LoadSchedule(path)
	require.NoError(t, err)
	require.Equal(t, want, got)

	require.NoError(t, os.WriteFile(path, []byte("job_id,start_ms,slot_id\n1,2,3\n1,4,3\n"), 0o600))
	_, err = LoadSchedule(path)
	require.ErrorContains(t, err, `schedule.csv line 3, column 1: job_id is "1"`)
}

func TestSecondsAreExact(t *testing.T) {
	for text, ms := range map[string]int64{
		"0": 0, "0.001": 1, "0.1": 100, "1.25": 1250, "2144.250": 2_144_250, "0.2900": 290, "1234567.891": 1_234_567_891,
		"4.35": 4350, // 4.35 * 1000 is 4349.999… in binary floating point
	} {
		got, err := parseSeconds(text)
		require.NoError(t, err, text)
		require.Equal(t, ms, got, text)
		again, err := parseSeconds(formatSeconds(ms))
		require.NoError(t, err)
		require.Equal(t, ms, again)
	}
	require.Equal(t, "4.35", formatSeconds(4350))
	require.Equal(t, "10", formatSeconds(10_000))
	for _, text := range []string{"", ".", "1.", "-1", "+1", "1,5", " 1", "0x1", "1_000", "Inf", "1.0001"} {
		_, err := parseSeconds(text)
		require.Error(t, err, text)
	}
}
