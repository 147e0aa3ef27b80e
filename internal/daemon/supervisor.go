package daemon

import (
	"context"
	"fmt"
	"net"
	"os"
	"strconv"
	"time"

	"github.com/dispatcherd/dispatcherd/internal/background"
)

// Supervisor informs the service manager that started the daemon: systemd, by sd_notify(3)
// and its watchdog. The zero value informs no service manager.
type Supervisor struct {
	socket string        // of datagrams; "" = none
	every  time.Duration // between two watchdog messages; 0 = no watchdog
}

// SupervisorOf reads the environment variables of systemd.
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

// notify sends one message, such as READY=1.
func (s Supervisor) notify(message string) error {
	if s.socket == "" {
		return nil
	}
	conn, err := net.Dial("unixgram", s.socket)
	if err == nil {
		_, err = conn.Write([]byte(message))
		_ = conn.Close() // the datagram has been sent
	}
	if err != nil {
		return fmt.Errorf("notifying the supervisor with %s: %w", message, err)
	}
	return nil
}

// watchdog returns the service that sends watchdog messages while alive returns true. If the loop is stuck, alive does not return, and no
// message is sent.
func (s Supervisor) watchdog(alive func() bool) background.Service {
	if s.every == 0 {
		return background.Service{}
	}
	return background.Service{Name: "watchdog", Step: func(context.Context, background.Now) (time.Duration, error) {
		if alive() {
			_ = s.notify("WATCHDOG=1") // systemd restarts the daemon if messages are missing
		}
		return s.every, nil
	}}
}
