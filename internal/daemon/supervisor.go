package daemon

import (
	"context"
	"fmt"
	"net"
	"os"
	"strconv"
	"time"
)

// Supervisor is who started the daemon and wants to know how it is: systemd, by
// sd_notify(3) and its watchdog. The zero value is nobody.
type Supervisor struct {
	socket string        // of datagrams; "" = nobody listens
	every  time.Duration // between two signs of life; 0 = none are wanted
}

// SupervisorOf reads what systemd put into the environment.
func SupervisorOf(env func(string) (string, bool)) Supervisor {
	var s Supervisor
	s.socket, _ = env("NOTIFY_SOCKET")
	pid, given := env("WATCHDOG_PID")
	limit, _ := env("WATCHDOG_USEC")
	if given && pid != strconv.Itoa(os.Getpid()) {
		return s // meant for another process
	}
	if usec, err := strconv.ParseInt(limit, 10, 64); err == nil && usec > 0 && s.socket != "" {
		s.every = max(time.Duration(usec)*time.Microsecond/3, time.Millisecond)
	}
	return s
}

// tell sends one message, such as READY=1. Nothing depends on its arrival but
// the supervisor's own view.
func (s Supervisor) tell(message string) error {
	if s.socket == "" {
		return nil
	}
	conn, err := net.Dial("unixgram", s.socket)
	if err != nil {
		return fmt.Errorf("telling the supervisor %s: %w", message, err)
	}
	defer func() { _ = conn.Close() }() // the datagram has been sent
	if _, err := conn.Write([]byte(message)); err != nil {
		return fmt.Errorf("telling the supervisor %s: %w", message, err)
	}
	return nil
}

// watch gives signs of life for as long as alive says so and ctx lasts. A loop
// that is stuck answers nothing, so alive does not return and no sign is given.
func (s Supervisor) watch(ctx context.Context, alive func() bool) {
	if s.every == 0 {
		return
	}
	tick := time.NewTicker(s.every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if alive() {
				_ = s.tell("WATCHDOG=1") // missing ones end in a restart, which is right
			}
		}
	}
}
