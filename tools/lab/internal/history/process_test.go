package history

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"testing"
)

func TestWrittenHistoryIsReadBack(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	offers := map[int32][]string{0: {"pdf"}, 1: {"excel", "pdf"}}
	j, err := CreateLog(path, "w0", offers)
	if err != nil {
		t.Fatal(err)
	}
	before := Now()
	e := Execution{Job: 7, Attempt: 2, Slot: 1, Type: "excel", N: 70}
	cut := Execution{Job: 8, Attempt: 1, Slot: 0, Type: "pdf", N: 80}
	j.Connected("a")
	j.Started(&e)
	j.Started(&cut)
	j.Ended(&e, OK)
	after := Now()
	p, err := ReadProcess(path)
	if err != nil {
		t.Fatal(err)
	}
	if p.Name != "w0" || p.PID != os.Getpid() || !reflect.DeepEqual(p.Offers, offers) || len(p.Runs) != 2 || len(p.Sessions) != 1 {
		t.Fatalf("%+v", p)
	}
	if c := p.Sessions[0]; c.Dispatcher != "a" || c.At < before || c.At > p.Runs[0].Start {
		t.Errorf("%+v", c)
	}
	first := p.Runs[0]
	if first.Start < before || first.End < first.Start || first.End > after || first.Outcome != OK {
		t.Errorf("between %d and %d: %+v", before, after, first)
	}
	first.Start, first.End, first.Outcome = 0, 0, ""
	if first != e || p.Runs[1].End != 0 {
		t.Errorf("%+v", p.Runs)
	}
}

func TestExistingLogIsNotAppendedTo(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	if _, err := CreateLog(path, "w0", nil); err != nil {
		t.Fatal(err)
	}
	if _, err := CreateLog(path, "w0", nil); !errors.Is(err, os.ErrExist) {
		t.Errorf("got %v", err)
	}
}

func TestInvalidLineOfALogIsAnError(t *testing.T) {
	for _, text := range []string{"hello\n", "start 1 2\n", "end 1 2 3 ok\n"} {
		path := filepath.Join(t.TempDir(), "log")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadProcess(path); err == nil {
			t.Errorf("%q was read", text)
		}
	}
}

func TestPlannedErrorNamesItsAttempt(t *testing.T) {
	if n, ok := PlannedAttempt(PlannedError(12)); n != 12 || !ok {
		t.Errorf("got %d, %v", n, ok)
	}
	if _, ok := PlannedAttempt("out of memory"); ok {
		t.Error("another error was parsed as a planned one")
	}
}
