package rig

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Process is a child process that prints lines.
type Process struct {
	name  string
	cmd   *exec.Cmd
	said  chan string // lines of its standard output
	done  chan struct{}
	err   error
	stray bytes.Buffer // its standard error
}

// patience bounds every wait for a line or the end of a process.
const patience = time.Minute

// RunSelf starts this program again with other arguments.
func RunSelf(name string, args ...string) (*Process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return Run(name, nil, self, args...)
}

// Run starts a program that ends with this one.
func Run(name string, env []string, path string, args ...string) (*Process, error) {
	cmd := exec.Command(path, args...)
	cmd.Env, cmd.SysProcAttr = append(os.Environ(), env...), DieWithParent()
	return start(name, cmd)
}

// CanRunAs reports whether RunAs is permitted.
func CanRunAs() bool { return os.Geteuid() == 0 }

// RunAs is Run as another user. It needs root.
func RunAs(uid uint32, name, path string, args ...string) (*Process, error) {
	cmd := exec.Command(path, args...)
	cmd.SysProcAttr = DieWithParent()
	cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uid, Gid: uid}
	cmd.Dir = "/"
	return start(name, cmd)
}

func start(name string, cmd *exec.Cmd) (*Process, error) {
	p := &Process{name: name, cmd: cmd, said: make(chan string, 1024), done: make(chan struct{})}
	p.cmd.Stderr = &p.stray
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	started := make(chan error)
	go func() {
		// The kernel kills the child when the thread that started it ends, so that
		// thread must not end.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := p.cmd.Start()
		started <- err
		if err != nil {
			return
		}
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			p.said <- lines.Text()
		}
		p.err = p.cmd.Wait()
		close(p.said)
		close(p.done)
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	return p, nil
}

// PID returns the process id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Expect waits for a line that begins with word and returns the remaining words.
func (p *Process) Expect(word string) ([]string, error) {
	limit := time.After(10 * patience)
	for {
		select {
		case line, ok := <-p.said:
			if !ok {
				return nil, fmt.Errorf("%s ended without %q: %w\n%s", p.name, word, errors.Join(p.err, errEnded), p.stray.String())
			}
			if words := strings.Fields(line); len(words) > 0 && words[0] == word {
				return words[1:], nil
			}
		case <-limit:
			return nil, fmt.Errorf("%s did not say %q", p.name, word)
		}
	}
}

var errEnded = errors.New("the process ended")

// ExpectInt is Expect for a line with one number.
func (p *Process) ExpectInt(word string) (int64, error) {
	words, err := p.Expect(word)
	if err != nil {
		return 0, err
	}
	if len(words) != 1 {
		return 0, fmt.Errorf("%s said %q %v, want one number", p.name, word, words)
	}
	return strconv.ParseInt(words[0], 10, 64)
}

// Wait waits for the process to end by itself.
func (p *Process) Wait() error {
	for range p.said { // lines that were not read
	}
	<-p.done
	if p.err != nil {
		return fmt.Errorf("%s: %w\n%s", p.name, p.err, p.stray.String())
	}
	return nil
}

// Stop asks the process to end, and kills it if it does not.
func (p *Process) Stop() error {
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // it may have ended already
	kill := time.AfterFunc(patience, func() { _ = p.cmd.Process.Kill() })
	defer kill.Stop()
	return p.Wait()
}

// Kill ends the process at once and waits for its end.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill() // it may have ended already
	_ = p.Wait()             // a killed process always ends with an error
}
