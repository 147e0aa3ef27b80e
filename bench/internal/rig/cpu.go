package rig

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// tick is the unit of /proc/PID/stat: USER_HZ is 100 on every Linux that Go
// runs on.
const tick = 10 * time.Millisecond

// CPU returns the processor time a process has used so far, 0 where there is
// no /proc. Children it has waited for count.
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

// PostgresCPU returns what the server has used so far: the postmaster, its
// children, and those that have ended. A child that ends meanwhile moves from
// one sum to the other, so a reading counts only if the postmaster's own has
// stood still.
func (r *Rig) PostgresCPU() time.Duration {
	postmaster := CPU(r.Server.PID())
	for range 1000 {
		sum := postmaster
		for _, pid := range children(r.Server.PID()) {
			sum += CPU(pid)
		}
		again := CPU(r.Server.PID())
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

// Memory returns the resident memory of a process now and at its most, bytes.
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
