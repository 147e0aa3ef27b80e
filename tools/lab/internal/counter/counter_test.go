package counter

import (
	"errors"
	"path/filepath"
	"testing"
)

func value(t *testing.T, file string) int64 {
	t.Helper()
	s, err := Read(file)
	if err != nil {
		t.Fatal(err)
	}
	return s.Value
}

func TestJobCountsOnceInAllItsAttempts(t *testing.T) {
	file := filepath.Join(t.TempDir(), "n")
	for fence, job := range []int64{7, 8, 7, 9} {
		if err := Add(file, job, int64(fence+1), 5); err != nil {
			t.Fatal(err)
		}
	}
	if n := value(t, file); n != 15 {
		t.Errorf("three jobs have counted to %d", n)
	}
}

// An attempt is killed after some of its additions, and other jobs run before its next attempt.
func TestNextAttemptMakesTheAdditionsThatAreLeft(t *testing.T) {
	file := filepath.Join(t.TempDir(), "n")
	var s State
	for range 3 {
		if more, err := s.add(1, 1, 5); !more || err != nil {
			t.Fatal(more, err)
		}
	}
	if err := write(file, file+".part", &s); err != nil {
		t.Fatal(err)
	}
	for _, job := range []int64{2, 1} {
		if err := Add(file, job, 4-job, 5); err != nil {
			t.Fatal(err)
		}
	}
	if n := value(t, file); n != 10 {
		t.Errorf("two jobs have counted to %d", n)
	}
}

func TestJobWithASmallerFenceDoesNotCount(t *testing.T) {
	file := filepath.Join(t.TempDir(), "n")
	if err := Add(file, 1, 10, 1); err != nil {
		t.Fatal(err)
	}
	if err := Add(file, 2, 10, 1); !errors.Is(err, ErrFence) {
		t.Errorf("the error is %v", err)
	}
	if n := value(t, file); n != 1 {
		t.Errorf("one job has counted to %d", n)
	}
}

// Two jobs at once: both read before either writes.
func TestJobsThatRunAtOnceLoseAnAddition(t *testing.T) {
	file := filepath.Join(t.TempDir(), "n")
	a, _ := Read(file)
	if err := Add(file, 2, 2, 1); err != nil {
		t.Fatal(err)
	}
	a.Fence, a.Value = 1, a.Value+1
	if err := write(file, file+".part", &a); err != nil {
		t.Fatal(err)
	}
	if n := value(t, file); n != 1 {
		t.Errorf("the number is %d: the check would find nothing", n)
	}
}
