package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/dispatcherd/dispatcherd/tools/lab/internal/history"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/rig"
)

// Sizes of the attacks.
const (
	pingers      = 30      // connections to each socket
	unknown      = 170_000 // unknown members of a frame
	spawners     = 20      // sessions
	spawnsOfOne  = 16      // unanswered spawns of a session
	asking       = 8       // callers that do not read answers
	askedByOne   = 100     // requests of each of them
	watching     = 200     // callers that do not read events
	eventsOfOne  = 50
	inserting    = 16 // callers that insert the same unique key
	uploadedJobs = 3000
)

// heldKey is the unique key of a job in an upload that does not end.
const heldKey = "held"

// long returns a JSON text of n bytes.
func long(n int) string { return `"` + strings.Repeat("x", n-2) + `"` }

// pings sends frames that are long to parse and mean nothing.
func (u *user) pings(ctx context.Context) error {
	ping := `{"op":"ping"` + strings.Repeat(`,"a":1`, unknown) + "}\n"
	for i := range 2 * pingers {
		socket, hello := u.api, callerHello
		if i%2 == 1 {
			socket, hello = u.worker, workerHello(0)
		}
		u.all.Go(func() {
			for ctx.Err() == nil {
				s, err := dial(ctx, socket, hello)
				if err != nil {
					return
				}
				go func() { _, _ = io.Copy(io.Discard, s) }() // until the session ends
				for ctx.Err() == nil && err == nil {
					_, err = io.WriteString(s, ping)
				}
				_ = s.Close() // what it reports is of no interest
			}
		})
	}
	return nil
}

// spawns inserts children whose unique key another transaction holds.
func (u *user) spawns(ctx context.Context) error {
	if err := u.hold(ctx); err != nil {
		return err
	}
	if err := u.insert(ctx, fmt.Sprintf(`{"type":"%s"}`+"\n", history.Hostile), spawners); err != nil {
		return err
	}
	return u.work(ctx, spawners, 1, func(s *session, f frame) error {
		n := 0
		switch f.Op {
		case "job":
			n = spawnsOfOne
		case "spawned":
			n = 1
		}
		for range n {
			s.spawns++
			if err := s.report("spawn", f, fmt.Sprintf(`"request":%d,"jobs":[{"type":"%s","unique_key":"%s"}]`,
				s.spawns, history.Hostile, heldKey)); err != nil {
				return err
			}
		}
		return nil
	})
}

// answers does not read long answers.
func (u *user) answers(ctx context.Context) error {
	result := `"result":` + long(1_000_000)
	if err := u.work(ctx, 4, 64, func(s *session, f frame) error {
		if f.Op != "job" {
			return nil
		}
		return s.report("done", f, result)
	}); err != nil {
		return err
	}
	return u.ask(ctx, asking, askedByOne, "")
}

// events does not read the output of its requests.
func (u *user) events(ctx context.Context) error {
	part := `"data":` + long(100_000)
	if err := u.work(ctx, 4, watching/4, func(s *session, f frame) error {
		for i := 0; f.Op == "job" && i < eventsOfOne; i++ {
			if err := s.report("partial", f, part); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		return err
	}
	return u.ask(ctx, watching, 1, `,"events":true`)
}

// ask sends requests in several sessions and reads nothing.
func (u *user) ask(ctx context.Context, sessions, requests int, members string) error {
	for range sessions {
		s, err := dial(ctx, u.api, callerHello)
		if err != nil {
			return err
		}
		u.until(ctx, s)
		for i := range requests {
			if err := s.send(`{"op":"request","id":%d,"type":"%s","timeout_ms":600000%s}`, i+1, history.Hostile, members); err != nil {
				break // the dispatcher has ended the session
			}
		}
	}
	return nil
}

// upload inserts a unique key again and again that an upload holds.
func (u *user) upload(ctx context.Context) error {
	if err := u.hold(ctx); err != nil {
		return err
	}
	job := fmt.Sprintf(`{"type":"%s","unique_key":"%s"}`, history.Hostile, heldKey)
	for range inserting {
		u.all.Go(func() {
			for ctx.Err() == nil {
				if u.post(ctx, "application/json", strings.NewReader(job)) != nil {
					_ = rig.Pause(ctx, 10*time.Millisecond)
				}
			}
		})
	}
	return nil
}

// hold begins an upload of jobs, one of which has the held key, and does not end it.
func (u *user) hold(ctx context.Context) error {
	body, upload := io.Pipe()
	u.all.Go(func() {
		_ = u.post(ctx, "application/x-ndjson", body) // it ends with an error
		_ = body.Close()
	})
	u.until(ctx, upload)
	var lines bytes.Buffer
	fmt.Fprintf(&lines, `{"type":"%s","unique_key":"%s"}`+"\n", history.Hostile, heldKey)
	for range uploadedJobs {
		fmt.Fprintf(&lines, `{"type":"%s","payload":%s}`+"\n", history.Hostile, long(200))
	}
	if _, err := upload.Write(lines.Bytes()); err != nil {
		return err
	}
	u.all.Go(func() {
		for rig.Pause(ctx, time.Second) == nil {
			if _, err := fmt.Fprintf(upload, `{"type":"%s"}`+"\n", history.Hostile); err != nil {
				return
			}
		}
	})
	return nil
}

// insert inserts a number of equal jobs.
func (u *user) insert(ctx context.Context, line string, n int) error {
	return u.post(ctx, "application/x-ndjson", strings.NewReader(strings.Repeat(line, n)))
}

// post sends jobs.
func (u *user) post(ctx context.Context, kind string, body io.Reader) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://daemon/v1/jobs", body)
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", kind)
	caller := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", u.api)
		},
	}}
	res, err := caller.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }() // the body is read completely
	if _, err := io.Copy(io.Discard, res.Body); err != nil {
		return err
	}
	if res.StatusCode >= http.StatusMultipleChoices {
		return fmt.Errorf("the dispatcher answers %s", res.Status)
	}
	return nil
}
