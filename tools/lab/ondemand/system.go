package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/dispatcherd/dispatcherd/client"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/rig"
)

// payload of every request, which the worker returns.
var payload = []byte(fmt.Sprintf(`{"text":%q}`, strings.Repeat("x", 80)))

// system is one path from a caller through a server to a worker and back. Caller,
// server and worker are separate processes.
type system struct {
	name      string
	ask       func() error // sends a request and waits for its answer
	processes []*rig.Process
	closers   []func() error
}

// start starts this program again, as one of the system's processes.
func (s *system) start(args ...string) error {
	_, err := s.startAndHear(args...)
	return err
}

// startAndHear is start, and returns the line that the process prints when it is
// ready.
func (s *system) startAndHear(args ...string) ([]string, error) {
	p, err := rig.RunSelf(args[0], args...)
	if err != nil {
		return nil, err
	}
	s.processes = append(s.processes, p)
	return p.Expect("ready")
}

// close ends the connections and then the processes in reverse order.
func (s *system) close() error {
	var errs []error
	for _, c := range slices.Backward(s.closers) {
		errs = append(errs, c())
	}
	for _, p := range slices.Backward(s.processes) {
		errs = append(errs, p.Stop())
	}
	return errors.Join(errs...)
}

// throughClient uses dispatcherd as a Go program does: with package client on the
// Unix socket.
func (s *scene) throughClient(ctx context.Context) (*system, error) {
	c, err := client.New(client.Options{Socket: s.daemon.API})
	if err != nil {
		return nil, err
	}
	return &system{name: "dispatcherd", closers: []func() error{func() error { c.Close(); return nil }}, ask: func() error {
		result, err := c.Do(ctx, client.Request{Type: jobType, Payload: json.RawMessage(payload)})
		if err == nil && !bytes.Equal(result, payload) {
			err = fmt.Errorf("%w: %.300s", errAnswer, result)
		}
		return err
	}}, nil
}

// throughHTTP uses dispatcherd as other programs do: HTTP on the Unix socket. The
// HTTP is written by hand.
func (s *scene) throughHTTP() *system {
	return &system{name: "http", ask: func() error {
		_, err := s.caller.ask()
		return err
	}}
}
