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
	s := &sampler{dir: dir, cmd: exec.Command("perf", "record", "-e", "cpu-clock", "-F", "999", "-a", "-g", "-q", "-o", filepath.Join(dir, "data"))}
	if err := s.cmd.Start(); err != nil {
		fmt.Println("perf does not start:", err)
		_ = os.RemoveAll(dir)
		return nil
	}
	return s
}

// report prints the share of each program, its hottest functions, and for the
// Go programs the functions with all they call.
func (s *sampler) report() error {
	if s == nil {
		return nil
	}
	defer func() { _ = os.RemoveAll(s.dir) }() // in the folder for temporary files
	_ = s.cmd.Process.Signal(syscall.SIGINT)
	_ = s.cmd.Wait() // ends with the signal
	for _, view := range []struct {
		title string
		args  []string
	}{
		{"programs, % of all processors", []string{"--no-children", "--sort", "comm,dso", "--percent-limit", "0.4"}},
		{"functions, % of all processors", []string{"--no-children", "--sort", "comm,symbol", "--percent-limit", "0.5"}},
		{"server, with what is called, % of all processors", []string{"--children", "--comms", "postgres", "--sort", "symbol", "--percent-limit", "0.5"}},
		{"daemon, with what is called, % of all processors", []string{"--children", "--comms", "dispatcherd", "--sort", "symbol", "--percent-limit", "0.5"}},
		{"workers, with what is called, % of all processors", []string{"--children", "--comms", "noop", "--sort", "symbol", "--percent-limit", "0.5"}},
	} {
		args := append([]string{"report", "-i", filepath.Join(s.dir, "data"), "--stdio", "-q", "-g", "none"}, view.args...)
		out, err := exec.Command("perf", args...).Output()
		if err != nil {
			return fmt.Errorf("perf report: %w", err)
		}
		fmt.Printf("\n%s\n", view.title)
		for line := range strings.Lines(string(out)) {
			if line = strings.TrimRight(line, " -\n"); line != "" {
				fmt.Println(line)
			}
		}
	}
	return nil
}
