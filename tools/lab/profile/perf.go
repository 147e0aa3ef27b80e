package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// sampler is a running perf; nil samples nothing.
type sampler struct {
	cmd *exec.Cmd
	dir string
}

// startPerf samples all processors, 999 times a second. It samples by the clock,
// because virtual machines often have no hardware counters.
func startPerf(wanted bool) *sampler {
	if !wanted {
		return nil
	}
	dir, err := os.MkdirTemp("", "perf-")
	if err != nil {
		fmt.Println("cannot create a file for samples:", err)
		return nil
	}
	s := &sampler{
		dir: dir,
		cmd: exec.Command("perf", "record", "-e", "cpu-clock", "-F", "999", "-a", "-g", "-q", "-o", filepath.Join(dir, "data")),
	}
	if err := s.cmd.Start(); err != nil {
		fmt.Println("perf cannot be started:", err)
		_ = os.RemoveAll(dir)
		return nil
	}
	return s
}

// report prints the share of each program, its hottest functions, and for the Go
// programs the functions including the functions that they call.
func (s *sampler) report() error {
	if s == nil {
		return nil
	}
	defer func() { _ = os.RemoveAll(s.dir) }() // it is below the folder for temporary files
	_ = s.cmd.Process.Signal(syscall.SIGINT)
	_ = s.cmd.Wait() // perf ends with the signal
	for _, view := range []struct {
		title string
		args  []string
	}{
		{"programs, % of all processors", []string{"--no-children", "--sort", "comm,dso", "--percent-limit", "0.4"}},
		{"functions, % of all processors", []string{"--no-children", "--sort", "comm,symbol", "--percent-limit", "0.5"}},
		{
			"server, including called functions, % of all processors",
			[]string{"--children", "--comms", "postgres", "--sort", "symbol", "--percent-limit", "0.5"},
		},
		{
			"daemon, including called functions, % of all processors",
			[]string{"--children", "--comms", "dispatcherd", "--sort", "symbol", "--percent-limit", "0.5"},
		},
		{
			"workers, including called functions, % of all processors",
			[]string{"--children", "--comms", "noop", "--sort", "symbol", "--percent-limit", "0.5"},
		},
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
