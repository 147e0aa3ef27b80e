package rig

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Daemon is a running dispatcherd.
type Daemon struct {
	*Process
	Workers string // socket of the workers
	API     string // socket of the callers
	api     *http.Client
}

// Daemon starts a daemon with the default settings and the given flags.
func (r *Rig) Daemon(ctx context.Context, dsn, name string, flags ...string) (*Daemon, error) {
	return r.DaemonOf(ctx, r.daemon, dsn, name, flags...)
}

// DaemonOf is Daemon with the program in file. If file is empty it uses the rig's
// program.
func (r *Rig) DaemonOf(ctx context.Context, file, dsn, name string, flags ...string) (*Daemon, error) {
	if file == "" {
		file = r.daemon
	}
	d := &Daemon{Workers: filepath.Join(r.dir, name+"-w.sock"), API: filepath.Join(r.dir, name+"-a.sock")}
	d.api = &http.Client{Timeout: patience, Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", d.API)
		},
	}}
	args := append([]string{"serve", "--database-url", dsn, "--name", name, "--worker-socket", d.Workers,
		"--api-socket", d.API, "--log-level", "warn"}, flags...)
	var err error
	if d.Process, err = Run(name, nil, file, args...); err != nil {
		return nil, err
	}
	if err := d.ready(ctx); err != nil {
		return nil, errors.Join(err, d.Stop())
	}
	return d, nil
}

// ready waits until the daemon is ready.
func (d *Daemon) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		if _, err := d.get(ctx, "/readyz"); err == nil {
			return nil
		}
		select {
		case <-d.done:
			return fmt.Errorf("%s ended: %w\n%s", d.name, d.err, d.stray.String())
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready: %w", d.name, ctx.Err())
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func (d *Daemon) get(ctx context.Context, path string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://daemon"+path, nil)
	if err != nil {
		return "", err
	}
	res, err := d.api.Do(req)
	if err != nil {
		return "", err
	}
	defer func() { _ = res.Body.Close() }() // the body was read completely
	text, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s answers %s", path, res.Status)
	}
	return string(text), err
}

// Metrics contains the daemon's counters and gauges. A key is the name with the
// labels, as in the text format.
type Metrics map[string]float64

// Metrics reads all metrics.
func (d *Daemon) Metrics(ctx context.Context) (Metrics, error) {
	text, err := d.get(ctx, "/metrics")
	if err != nil {
		return nil, err
	}
	return parseMetrics(text), nil
}

func parseMetrics(text string) Metrics {
	m := Metrics{}
	for line := range strings.Lines(text) {
		name, value, ok := strings.Cut(strings.TrimSpace(line), "} ")
		if ok {
			name += "}"
		} else {
			name, value, _ = strings.Cut(strings.TrimSpace(line), " ")
		}
		if v, err := strconv.ParseFloat(value, 64); err == nil && !strings.HasPrefix(name, "#") {
			m[name] = v
		}
	}
	return m
}

// Event returns the counter of an event of jobs: placed, won, lost, done and so on.
func (m Metrics) Event(name string) float64 { return m[`dispatcherd_jobs_total{event="`+name+`"}`] }

// Done returns how many jobs of all types were done.
func (m Metrics) Done() (n float64) {
	for name, value := range m {
		if strings.HasPrefix(name, `dispatcherd_jobs_ended_total{outcome="done",`) {
			n += value
		}
	}
	return n
}

// State returns a gauge: unrecorded, in_hand, slots and so on.
func (m Metrics) State(what string) float64 { return m[`dispatcherd_state{what="`+what+`"}`] }

// Statements returns how often a kind of statement was executed, for how many rows,
// and the total time.
func (m Metrics) Statements(operation string) (count, rows float64, took time.Duration) {
	label := `{operation="` + operation + `",verdict="ok"}`
	return m["dispatcherd_statement_duration_seconds_count"+label],
		m[`dispatcherd_statement_rows_total{operation="`+operation+`"}`],
		time.Duration(m["dispatcherd_statement_duration_seconds_sum"+label] * 1e9)
}

// Minus returns the increase of every counter since before.
func (m Metrics) Minus(before Metrics) Metrics {
	d := Metrics{}
	for k, v := range m {
		d[k] = v - before[k]
	}
	return d
}

// AwaitDone returns the time at which n jobs were done and recorded in Postgres. It
// polls rarely while many jobs are left, in order not to disturb the measurement.
func (d *Daemon) AwaitDone(ctx context.Context, n int) (time.Time, error) {
	began, last, moved := time.Now(), -1.0, time.Now()
	for {
		m, err := d.Metrics(ctx)
		now := time.Now()
		if err != nil {
			return now, err
		}
		done := m.Done()
		if done >= float64(n) && m.State("unrecorded") == 0 {
			return now, nil
		}
		if done > last {
			last, moved = done, now
		} else if now.Sub(moved) > patience {
			return now, fmt.Errorf("no job ended for %v; %v of %d jobs are done", patience, done, n)
		}
		left := time.Duration((float64(n) - done) / max(done, 1) * float64(now.Sub(began)) / 2)
		select {
		case <-time.After(min(max(left, time.Millisecond), 250*time.Millisecond)):
		case <-ctx.Done():
			return now, ctx.Err()
		}
	}
}
