package workerproto

import (
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"time"
)

// greet waits for the hello, asks the handler, and welcomes the worker.
func (srv *server) greet(s *Session) (opened bool, cause error) {
	now := time.Now()
	s.deadline(now, now.Add(srv.limits.HelloTimeout))
	line, err := s.firstLine()
	if err != nil {
		if errors.Is(err, os.ErrDeadlineExceeded) {
			err = Complain(HelloTimeout, 0, "no hello within %v", srv.limits.HelloTimeout)
		}
		return false, err
	}
	f, fault := s.decoder.Decode(line)
	if fault == nil {
		fault = s.machine.accept(f)
	} else {
		fault = s.machine.verdict(fault)
	}
	if fault != nil {
		return false, fault
	}
	hello := f.(*Hello)
	s.worker, s.hello = hello.Worker, hello
	err = srv.openHandler(s, hello)
	return err == nil, err
}

// openHandler runs Open with the outbox held back, so that the welcome is the
// first thing that the worker reads.
func (srv *server) openHandler(s *Session, hello *Hello) (err error) {
	w := &Welcome{Version: version(hello), Session: s.nonce, Dispatcher: srv.limits.Dispatcher, Limits: srv.limits.parameters()}
	s.out.hold(srv.limits.Outbox + 2*srv.limits.MaxSlots)
	defer recovered(&err)
	if err := srv.handler.Open(s, hello); err != nil {
		var rule *Error
		if !errors.As(err, &rule) {
			rule = Complain(Internal, 0, "the dispatcher could not register the worker; try again later")
		}
		return rule
	}
	w.Resumed = s.resumed
	s.hello = nil
	s.resize()
	s.out.release(w)
	return nil
}

// firstLine waits for one complete line, until the deadline that is set.
func (s *Session) firstLine() ([]byte, error) {
	for {
		line, ok, fault := s.in.next()
		if fault != nil {
			return nil, s.machine.verdict(fault)
		}
		if ok {
			return line, nil
		}
		if err := s.in.read(); err != nil {
			return nil, err
		}
	}
}

// converse hands over batch after batch until the session ends.
func (srv *server) converse(s *Session) (cause error) {
	defer recovered(&cause)
	var batch []WorkerFrame
	for {
		var fault error
		batch, fault = s.collect(batch[:0])
		if len(batch) > 0 {
			srv.handler.Frames(s, batch)
		}
		if fault != nil {
			return fault
		}
		clear(batch)
		s.decoder.Reset()
		if err := s.listen(); err != nil {
			return err
		}
		if cap(batch) > maxArena {
			batch = nil
		}
	}
}

// collect decodes every complete line that is there. Complaints are answered
// on the way; a fatal one ends the batch.
func (s *Session) collect(batch []WorkerFrame) ([]WorkerFrame, error) {
	frames, from := 0, s.in.start
	defer func() {
		if frames > 0 {
			s.obs.Received(frames, s.in.start-from)
		}
	}()
	for {
		line, ok, fault := s.in.next()
		if fault != nil {
			return batch, s.machine.verdict(fault)
		}
		if !ok {
			return batch, nil
		}
		frames++
		f, fault := s.decoder.Decode(line)
		if fault == nil {
			fault = s.machine.accept(f)
		} else {
			fault = s.machine.verdict(fault)
		}
		switch {
		case fault == nil:
			batch = s.dispose(batch, f)
		case fault.Fatal:
			return batch, fault
		default:
			s.obs.Complained(fault.Code)
			s.send(fault)
			if end := s.decoder.ending(fault); end != nil && s.machine.accept(end) == nil {
				batch = append(batch, end)
			}
		}
	}
}

// dispose keeps a good frame for the handler, unless it is the session's own
// business.
func (s *Session) dispose(batch []WorkerFrame, f WorkerFrame) []WorkerFrame {
	switch f.(type) {
	case *Ping:
		s.send(pong)
		return batch
	case *Pong:
		return batch
	case *SlotAdd:
		s.resize()
	}
	return append(batch, f)
}

// The heartbeats have no content and are shared by all sessions.
var (
	ping = &Ping{}
	pong = &Pong{}
)

// listen waits for more bytes. It pings when the worker has been silent for
// HeartbeatInterval, and gives up after HeartbeatTimeout: a stopped process
// keeps its connection open, so only silence shows it. Time that this process stood
// still after a read's deadline is not the worker's silence: what it has sent meanwhile
// is still to be read.
func (s *Session) listen() error {
	heard := time.Now()
	for now, pinged := heard, heard; ; {
		until := pinged.Add(s.limits.HeartbeatInterval)
		if end := heard.Add(s.limits.HeartbeatTimeout); until.After(end) {
			until = end
		}
		if !s.deadline(now, until) {
			return s.ending()
		}
		err := s.in.read()
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return err
		}
		now = time.Now()
		heard = heard.Add(max(now.Sub(until), 0))
		if silent := now.Sub(heard); silent >= s.limits.HeartbeatTimeout {
			return Complain(HeartbeatTimeout, 0, "nothing heard for %v", silent)
		}
		pinged = now
		s.in.shrink()
		s.decoder.shrink()
		s.send(ping)
	}
}

// resize lets two frames a slot wait, a job and its cancel, beside the rest.
// The limit never shrinks: what was queued for slots that are gone still waits.
func (s *Session) resize() {
	s.out.grow(s.limits.Outbox + 2*len(s.machine.slots))
}

// recovered turns a panic of the handler into the end of this session.
func recovered(err *error) {
	if v := recover(); v != nil {
		*err = &panicError{value: v, stack: debug.Stack()}
	}
}

// panicError keeps a handler's panic as the cause of a session's end.
type panicError struct {
	value any
	stack []byte
}

// Error returns the panic's value and its stack.
func (e *panicError) Error() string { return fmt.Sprintf("handler panicked: %v\n%s", e.value, e.stack) }
