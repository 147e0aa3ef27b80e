// Package counter adds 1 to the number in a file, as a job that a mutex protects. It locks nothing: two
// jobs that run at once lose an addition, and the number is too small.
package counter

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
)

// kept is how many of the last jobs a file names. A job that was killed after it had counted runs again
// before so many others have run.
const kept = 2000

// State is the content of a file.
type State struct {
	Fence int64   `json:"fence"` // of the last job
	Value int64   `json:"value"`
	Jobs  []int64 `json:"jobs"` // the last jobs that have counted
}

// Read reads a file. If it does not exist, the number is 0.
func Read(file string) (s State, err error) {
	text, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return s, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &s)
	}
	return s, err
}

// ErrFence says that a job with a larger fence has counted. The mutex never lets it happen to a job that runs.
var ErrFence = errors.New("a job with a larger fence has counted")

// Add adds 1, unless an earlier attempt of the job has done so. The fence, the number and the job are written
// in one step, so an attempt that is killed has counted or not.
func Add(file string, job, fence int64) error {
	s, err := Read(file)
	if err != nil {
		return err
	}
	if fence <= s.Fence {
		return fmt.Errorf("job %d with fence %d: %w: %d", job, fence, ErrFence, s.Fence)
	}
	if slices.Contains(s.Jobs, job) {
		return nil
	}
	s.Fence, s.Value = fence, s.Value+1
	s.Jobs = append(s.Jobs[max(0, len(s.Jobs)-kept+1):], job)
	return write(file, fmt.Sprint(file, ".", job, ".", fence), &s)
}

// write replaces the file. Its former content remains until the new one is complete.
func write(file, part string, s *State) error {
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	if err := os.WriteFile(part, text, 0o600); err != nil {
		return err
	}
	return os.Rename(part, file)
}
