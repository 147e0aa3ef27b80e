//go:build unix

package client

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/workerproto"
)

// connecting returns a function that says hello on a connection.
func connecting(dial func() net.Conn) func() (*workerproto.CallerConn, error) {
	return func() (*workerproto.CallerConn, error) {
		return workerproto.ConnectCaller(context.Background(), dial(), "", "")
	}
}

// A dispatcher that accepts a connection and sends no welcome delays no call beyond the
// call's own context, and Close not at all.
func TestConnectionAttemptBlocksNoOtherCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dials := 0
		c := &frameClient{dial: connecting(func() net.Conn {
			dials++
			near, far := net.Pipe()
			go func() { _, _ = bufio.NewReader(far).ReadBytes('\n') }() // the hello; nothing follows
			return near
		})}
		began := time.Now()
		patient := make(chan error, 1)
		go func() {
			_, err := c.do(t.Context(), &Request{Type: "pdf"}, nil)
			patient <- err
		}()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := c.do(ctx, &Request{Type: "pdf"}, nil)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, time.Second, time.Since(began))
		c.close()
		require.Equal(t, time.Second, time.Since(began))
		require.ErrorContains(t, <-patient, "waiting for the welcome")
		require.Equal(t, 15*time.Second, time.Since(began))
		require.Equal(t, 1, dials)
	})
}

// Concurrent first calls share one connection. A call that gives up does not end the
// attempt of the others.
func TestConcurrentCallsShareAConnectionAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dials := 0
		c := &frameClient{dial: connecting(func() net.Conn {
			dials++
			near, far := net.Pipe()
			go answerAll(far, time.Second)
			return near
		})}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		_, err := c.do(ctx, &Request{Type: "pdf"}, nil)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		answers := make(chan error, 10)
		for range cap(answers) {
			go func() {
				_, err := c.do(t.Context(), &Request{Type: "pdf"}, nil)
				answers <- err
			}()
		}
		for range cap(answers) {
			require.NoError(t, <-answers)
		}
		require.Equal(t, 1, dials)
		c.close()
	})
}

// Close lets calls in progress continue, also those that still wait for the connection.
// Then the connection ends.
func TestCloseWhileConnectingLetsTheCallContinue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dials, ended := 0, make(chan struct{})
		c := &frameClient{dial: connecting(func() net.Conn {
			dials++
			near, far := net.Pipe()
			go func() {
				answerAll(far, time.Second)
				close(ended)
			}()
			return near
		})}
		answer := make(chan error, 1)
		go func() {
			_, err := c.do(t.Context(), &Request{Type: "pdf"}, nil)
			answer <- err
		}()
		synctest.Wait()
		c.close()
		require.NoError(t, <-answer)
		<-ended
		require.Equal(t, 1, dials)
	})
}

// answerAll welcomes a caller after a delay and answers each request with its id.
func answerAll(conn net.Conn, delay time.Duration) {
	lines := bufio.NewScanner(conn)
	lines.Scan()
	<-time.After(delay)
	_, _ = fmt.Fprintln(conn, `{"op":"welcome","version":1,"session":"s","dispatcher":"d"}`) // the test notices a failure
	for lines.Scan() {
		var id int
		if n, _ := fmt.Sscanf(lines.Text(), `{"op":"request","id":%d`, &id); n == 1 {
			_, _ = fmt.Fprintf(conn, "{\"op\":\"answer\",\"id\":%d,\"result\":%d}\n", id, id)
		}
	}
}

// The dispatcher would otherwise run the request for no caller, and Close would wait for it.
func TestPanicOfTheStreamsFunctionCancelsTheRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		last, ended := "", make(chan struct{})
		c := &frameClient{dial: connecting(func() net.Conn {
			near, far := net.Pipe()
			go func() {
				defer close(ended)
				lines := bufio.NewScanner(far)
				lines.Scan()
				_, _ = fmt.Fprintln(far, `{"op":"welcome","version":1,"session":"s","dispatcher":"d"}`) // the test notices a failure
				lines.Scan()
				_, _ = fmt.Fprintln(far, `{"op":"queued","id":1,"rank":1,"waiting":1}`)
				for lines.Scan() {
					last = lines.Text()
				}
			}()
			return near
		})}
		require.PanicsWithValue(t, "boom", func() {
			_, _ = c.do(t.Context(), &Request{Type: "pdf"}, func(Event) error { panic("boom") })
		})
		c.close()
		<-ended
		require.JSONEq(t, `{"op":"cancel","id":1}`, last)
	})
}
