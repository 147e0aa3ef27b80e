package rig

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

func keepSleep(t *testing.T) *Keeper {
	t.Helper()
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	k := Keep(log, true, func(int) *exec.Cmd { return exec.Command("sleep", "1000") })
	t.Cleanup(func() { _ = k.Stop(patience) })
	return k
}

// awaitEnd waits for the end of a process: changed is closed then.
func awaitEnd(t *testing.T, changed <-chan struct{}) {
	t.Helper()
	select {
	case <-changed:
	case <-time.After(patience):
		t.Fatal("the process has not ended")
	}
}

func TestKilledProcessIsRestartedAndRecorded(t *testing.T) {
	k := keepSleep(t)
	changed := k.Signal(0)
	pid, at := k.Kill()
	awaitEnd(t, changed)
	lives := k.Lives()
	if lives[0].PID != pid || lives[0].Killed != at || at == 0 || lives[0].Died < at {
		t.Fatalf("%+v", lives)
	}
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for begun := time.Now(); len(lives) < 2; lives = k.Lives() {
		if <-tick.C; time.Since(begun) > patience {
			t.Fatal("it was not started again")
		}
	}
	if lives[1].PID == pid || lives[1].Killed != 0 || lives[1].Died != 0 {
		t.Fatalf("%+v", lives)
	}
}

// When another process that was killed later runs again, it still rests. Stop ends the rest.
func TestProcessKilledForAWhileRests(t *testing.T) {
	k, other := keepSleep(t), keepSleep(t)
	changed := k.Signal(0)
	k.KillFor(time.Hour)
	awaitEnd(t, changed)
	for range 3 {
		before := len(other.Lives())
		changed = other.Signal(0)
		other.Kill()
		awaitEnd(t, changed)
		tick := time.NewTicker(5 * time.Millisecond)
		for begun := time.Now(); len(other.Lives()) == before && time.Since(begun) < patience; {
			<-tick.C
		}
		tick.Stop()
	}
	_ = k.Stop(patience)
	if lives := k.Lives(); len(lives) != 1 {
		t.Fatalf("%+v", lives)
	}
}

func TestStopEndsAProcessSuspendedBySIGSTOP(t *testing.T) {
	k := keepSleep(t)
	k.Signal(syscall.SIGSTOP) // a suspended process must end as well
	_ = k.Stop(patience)
	lives := k.Lives()
	if last := lives[len(lives)-1]; last.Died == 0 {
		t.Fatalf("%+v", lives)
	}
	if pid, _ := k.Kill(); pid != 0 {
		t.Errorf("process %d still runs", pid)
	}
}

func TestDeadlocksAreCountedAcrossWrites(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	l := &serverLog{f: f}
	for _, piece := range []string{"ERROR:  dead", "lock detected\nLOG:  fine\nERROR:  deadlock detected", "\n"} {
		if _, err := l.Write([]byte(piece)); err != nil {
			t.Fatal(err)
		}
	}
	if n := l.deadlocks(); n != 2 {
		t.Errorf("%d deadlocks, want 2", n)
	}
}
