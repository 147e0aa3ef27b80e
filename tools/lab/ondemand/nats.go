package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

// Hidden arguments that make this program a NATS server or one of its workers.
const (
	natsServer = "nats-server"
	natsWorker = "nats-worker"
)

// serveNATS runs the server and prints its address.
func serveNATS(ctx context.Context) error {
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, NoSigs: true, NoLog: true})
	if err != nil {
		return err
	}
	go s.Start()
	if !s.ReadyForConnections(10 * time.Second) {
		return errors.New("the NATS server does not start")
	}
	fmt.Println("ready", s.ClientURL())
	<-ctx.Done()
	s.Shutdown()
	return nil
}

// serveNATSWorker is a worker that returns the payload.
func serveNATSWorker(ctx context.Context, url string) error {
	conn, err := nats.Connect(url)
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, err := conn.QueueSubscribe(jobType, "workers", func(m *nats.Msg) { _ = m.Respond(m.Data) }); err != nil {
		return err
	}
	if err := conn.Flush(); err != nil {
		return err
	}
	fmt.Println("ready")
	<-ctx.Done()
	return nil
}

// openNATS starts a server and a worker, and connects to the server as a caller.
func openNATS() (_ *system, err error) {
	s := &system{name: "nats"}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	words, err := s.startAndHear(natsServer)
	if err != nil {
		return nil, err
	}
	url := words[0]
	if err := s.start(natsWorker, url); err != nil {
		return nil, err
	}
	conn, err := nats.Connect(url)
	if err != nil {
		return nil, err
	}
	s.closers = append(s.closers, func() error { conn.Close(); return nil })
	s.ask = func() error {
		m, err := conn.Request(jobType, payload, time.Minute)
		if err == nil && !bytes.Equal(m.Data, payload) {
			err = errAnswer
		}
		return err
	}
	return s, nil
}
