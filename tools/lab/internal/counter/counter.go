// Package counter adds to the number in a file, as jobs that a mutex protects. It locks nothing: two
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
const kept = 500

// State is the content of a file.
type State struct {
	Fence   int64         `json:"fence"` // of the last job
	Job     int64         `json:"job"`   // the last one
	Value   int64         `json:"value"`
	Partial map[int64]int `json:"partial"` // additions of the jobs that have not made all of theirs
	Jobs    []int64       `json:"jobs"`    // the last jobs that have made all of theirs
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

// Add adds 1 some times, each time from the content of the file. It leaves out the additions of earlier attempts of the job.
func Add(file string, job, fence int64, times int) error {
	for more := true; more; {
		s, err := Read(file)
		if err == nil {
			more, err = s.add(job, fence, times)
		}
		if err == nil {
			err = write(file, fmt.Sprint(file, ".", job, ".", fence), &s)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// add adds 1, unless the job has made all of its additions, and reports whether further ones are left. The
// fence, the number and the job are written in one step, so an attempt that is killed has counted or not.
func (s *State) add(job, fence int64, times int) (more bool, err error) {
	if fence < s.Fence || fence == s.Fence && s.Job != job {
		return false, fmt.Errorf("job %d with fence %d: %w: %d", job, fence, ErrFence, s.Fence)
	}
	s.Fence, s.Job = fence, job
	if slices.Contains(s.Jobs, job) {
		return false, nil
	}
	if s.Partial == nil {
		s.Partial = map[int64]int{}
	}
	s.Value++
	if s.Partial[job]++; s.Partial[job] < times {
		return true, nil
	}
	delete(s.Partial, job)
	s.Jobs = append(s.Jobs[max(0, len(s.Jobs)-kept+1):], job)
	return false, nil
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
