package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
)

// childError is the exit code of a child process that has run the command line instead, and has printed what happened.
type childError int

// Error implements error.
func (e childError) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

// asInit does what process 1 of a container must do: it reaps the processes whose parents have ended. It runs this command line again
// in a child process, passes signals on to it, and returns how it has ended. The worker cannot reap such processes, because
// it would take the exit codes of its own programs, too.
func asInit() error {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
	self, err := os.Executable()
	if err != nil {
		return err
	}
	child := &exec.Cmd{
		Path: self, Args: os.Args, Stdout: os.Stdout, Stderr: os.Stderr,
		SysProcAttr: &syscall.SysProcAttr{Setpgid: true}, // a terminal sends its signals only to this process
	}
	if err := child.Start(); err != nil {
		return err
	}
	go func() {
		for s := range signals {
			_ = child.Process.Signal(s) // fails only if it has ended
		}
	}()
	for {
		var status syscall.WaitStatus
		switch pid, err := syscall.Wait4(-1, &status, 0, nil); {
		case err != nil && !errors.Is(err, syscall.EINTR):
			return fmt.Errorf("waiting for the worker: %w", err)
		case pid != child.Process.Pid:
		case status.Signaled():
			return childError(128 + int(status.Signal()))
		default:
			return childError(status.ExitStatus())
		}
	}
}
