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
		if err := Add(file, job, int64(fence+1)); err != nil {
			t.Fatal(err)
		}
	}
	if n := value(t, file); n != 3 {
		t.Errorf("three jobs have counted to %d", n)
	}
}

func TestJobWithASmallerFenceDoesNotCount(t *testing.T) {
	file := filepath.Join(t.TempDir(), "n")
	if err := Add(file, 1, 10); err != nil {
		t.Fatal(err)
	}
	if err := Add(file, 2, 10); !errors.Is(err, ErrFence) {
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
	if err := Add(file, 2, 2); err != nil {
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
