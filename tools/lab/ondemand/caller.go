package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"time"
)

// caller sends the same request again and again over one connection. It implements
// only the necessary part of HTTP, so that the daemon is measured instead of an
// HTTP library.
type caller struct {
	conn    net.Conn
	in      *bufio.Reader
	request []byte
	want    []byte
	body    []byte
}

// jobType is the type of both requests and queued jobs, so that they compete for
// slots.
const jobType = "work"

func dial(ctx context.Context, socket string) (*caller, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", socket)
	if err != nil {
		return nil, err
	}
	body := fmt.Sprintf(`{"type":%q,"payload":%s}`, jobType, payload)
	c := &caller{conn: conn, in: bufio.NewReader(conn), want: payload}
	c.request = fmt.Appendf(nil,
		"POST /v1/requests HTTP/1.1\r\nHost: d\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body),
		body)
	return c, nil
}

var errAnswer = errors.New("unexpected answer")

// ask sends a request and waits for its answer.
func (c *caller) ask() (time.Duration, error) {
	began := time.Now()
	if _, err := c.conn.Write(c.request); err != nil {
		return 0, err
	}
	status, err := c.in.ReadSlice('\n')
	if err != nil {
		return 0, err
	}
	ok := bytes.HasPrefix(status, []byte("HTTP/1.1 200 "))
	length, err := c.header()
	if err != nil {
		return 0, err
	}
	c.body = append(c.body[:0], make([]byte, length)...)
	if _, err := io.ReadFull(c.in, c.body); err != nil {
		return 0, err
	}
	took := time.Since(began)
	if !ok || !bytes.Equal(c.body, c.want) {
		return 0, fmt.Errorf("%w: %.300s", errAnswer, c.body)
	}
	return took, nil
}

// header reads the headers and returns the length of the body.
func (c *caller) header() (length int, err error) {
	name := []byte("Content-Length: ")
	for {
		line, err := c.in.ReadSlice('\n')
		if err != nil {
			return 0, err
		}
		if line = bytes.TrimSpace(line); len(line) == 0 {
			return length, nil
		}
		if bytes.HasPrefix(line, name) {
			if length, err = strconv.Atoi(string(line[len(name):])); err != nil {
				return 0, err
			}
		}
	}
}
