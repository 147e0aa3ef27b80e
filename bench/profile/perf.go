package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// sampler is perf at work; nil samples nothing.
type sampler struct {
	cmd *exec.Cmd
	dir string
}

// startPerf samples all processors, 999 times a second. Virtual machines often
// have no counters, so the clock it is.
func startPerf(wanted bool) *sampler {
	if !wanted {
		return nil
	}
	dir, err := os.MkdirTemp("", "perf-")
	if err != nil {
		fmt.Println("no place for samples:", err)
		return nil
	}
	s := &sampler{dir: dir, cmd: exec.Command("perf", "record", "-e", "cpu-clock", "-F", "999", "-a", "-q", "-o", filepath.Join(dir, "data"))}
	if err := s.cmd.Start(); err != nil {
		fmt.Println("perf does not start:", err)
		_ = os.RemoveAll(dir)
		return nil
	}
	return s
}

// report prints the share of each program and its hottest functions.
func (s *sampler) report() error {
	if s == nil {
		return nil
	}
	defer os.RemoveAll(s.dir)
	_ = s.cmd.Process.Signal(syscall.SIGINT)
	_ = s.cmd.Wait() // ends with the signal
	for _, keys := range []string{"comm", "comm,dso", "comm,symbol"} {
		out, err := exec.Command("perf", "report", "-i", filepath.Join(s.dir, "data"), "--stdio", "-q", "--no-children",
			"-g", "none", "--percent-limit", "0.25", "--sort", keys).Output()
		if err != nil {
			return fmt.Errorf("perf report: %w", err)
		}
		fmt.Printf("\nsamples by %s, %% of both processors:\n%s", keys, strings.ReplaceAll(string(out), "\n\n", "\n"))
	}
	return nil
}
