package rig

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// tick is the unit of times in /proc/PID/stat: USER_HZ is 100 on every Linux system
// that Go supports.
const tick = 10 * time.Millisecond

// CPU returns the processor time that a process has used so far, including children
// it has waited for. It returns 0 if there is no /proc.
func CPU(pid int) time.Duration {
	f := statFields(pid)
	if f == nil {
		return 0
	}
	var ticks int64
	for _, v := range f[11:15] { // utime stime cutime cstime
		n, _ := strconv.ParseInt(v, 10, 64)
		ticks += n
	}
	return time.Duration(ticks) * tick
}

// statFields returns the fields of /proc/PID/stat from the third one on.
func statFields(pid int) []string {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return nil
	}
	_, rest, _ := bytes.Cut(text[bytes.LastIndexByte(text, ')'):], []byte(" "))
	f := strings.Fields(string(rest))
	if len(f) < 15 {
		return nil
	}
	return f
}

// PostgresCPU returns the processor time that the server has used so far: the
// postmaster, its children, and children that have ended. A child that ends during
// the reading moves from one sum to the other, so a reading is valid only if the
// postmaster's own sum has not changed.
func (r *Rig) PostgresCPU() time.Duration {
	postmaster := CPU(r.Postgres.PID())
	for range 1000 {
		sum := postmaster
		for _, pid := range children(r.Postgres.PID()) {
			sum += CPU(pid)
		}
		again := CPU(r.Postgres.PID())
		if again == postmaster {
			return sum
		}
		postmaster = again
	}
	return postmaster
}

func children(parent int) []int {
	entries, _ := os.ReadDir("/proc")
	var pids []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if f := statFields(pid); f != nil && f[1] == strconv.Itoa(parent) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// Memory returns the current and the largest resident memory of a process in bytes.
func Memory(pid int) (now, most int64) {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if len(f) < 2 {
			continue
		}
		kb, _ := strconv.ParseInt(f[1], 10, 64)
		switch f[0] {
		case "VmRSS:":
			now = kb << 10
		case "VmHWM:":
			most = kb << 10
		}
	}
	return now, most
}
