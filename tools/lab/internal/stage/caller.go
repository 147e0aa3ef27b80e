package stage

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/dispatcherd/dispatcherd/tools/lab/internal/history"
)

// Call sends one on-demand request, waits for its answer, and records it.
func (s *Stage) Call(ctx context.Context, d *Daemon, manner history.Manner, timeout time.Duration) history.Call {
	w := s.Producer.mix(s.Producer.numbers.Add(1))
	w.Fail, w.Do = 0, history.Succeed
	c := history.Call{Work: w, Manner: manner, Daemon: d.Name, Timeout: timeout, Begun: history.Now()}
	err := s.ask(ctx, d, &c)
	c.Ended = history.Now()
	if err != nil {
		var dial *net.OpError
		c.Status, c.Problem, c.Refused = 0, err.Error(), errors.As(err, &dial) && dial.Op == "dial"
	}
	c.Work.Dropped = c.Status == http.StatusGatewayTimeout
	s.callsMu.Lock()
	defer s.callsMu.Unlock()
	s.calls = append(s.calls, c)
	return c
}

// Calls returns the calls recorded so far.
func (s *Stage) Calls() []history.Call {
	s.callsMu.Lock()
	defer s.callsMu.Unlock()
	return append([]history.Call(nil), s.calls...)
}

func (s *Stage) ask(ctx context.Context, d *Daemon, c *history.Call) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.Timeout+time.Minute) // much longer than any answer may take
	defer cancel()
	body, err := json.Marshal(map[string]any{
		"type": c.Work.Type, "payload": c.Work, "timeout": c.Timeout.String(), "durable": c.Manner != history.InMemory,
	})
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://daemon/v1/requests", bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	if c.Manner == history.Async {
		req.Header.Set("Prefer", "respond-async")
	}
	res, err := d.Client().Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }() // the body is read completely
	text, err := io.ReadAll(res.Body)
	if err != nil {
		return err
	}
	c.Status, c.RetryAfter = res.StatusCode, res.Header.Get("Retry-After") != ""
	switch {
	case c.Status == http.StatusOK:
		return json.Unmarshal(text, &c.Result)
	case c.Status >= http.StatusBadRequest:
		var problem struct {
			Type string `json:"type"`
		}
		err = json.Unmarshal(text, &problem)
		c.Problem = problem.Type
	}
	return err
}

// Client returns a client of the API. Each of its requests uses a new connection, because a kept one could belong to an earlier process of
// the daemon.
func (d *Daemon) Client() *http.Client {
	return &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", d.API)
		},
	}}
}

// rowsOf returns the transactions of durable requests whose callers know the id.
func rowsOf(calls []history.Call) (batches []history.Batch) {
	for i := range calls {
		c := &calls[i]
		if c.Manner == history.InMemory {
			continue
		}
		fate := history.Unknown
		if c.Refused {
			fate = history.RolledBack
		}
		if c.Status == http.StatusOK || c.Status == http.StatusAccepted {
			fate = history.Committed
		}
		batches = append(batches, history.Batch{Jobs: []history.Work{c.Work}, Begun: c.Begun, Ended: c.Ended, Fate: fate})
	}
	return batches
}
