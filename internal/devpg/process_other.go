//go:build !linux

package devpg

import (
	"os/exec"
	"strconv"
	"strings"
	"syscall"
)

// parentDeathSignal: the watchdog takes the place of the kernel.
const parentDeathSignal = false

// bindToParent does nothing here; the watchdog guards the postmaster, and an
// initdb that loses its parent ends by itself.
func bindToParent(*exec.Cmd, syscall.Signal) (unlock func()) { return func() {} }

// runsIn reports whether the process is alive and was started for dir.
func runsIn(pid int, dir string) bool {
	out, err := output("ps", "-o", "stat=,command=", "-p", strconv.Itoa(pid))
	return err == nil && !strings.HasPrefix(out, "Z") && strings.Contains(out, " -D "+dir+" ")
}
