package history

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
)

// Process is the log of one worker process.
type Process struct {
	Name   string
	PID    int
	Keeper string             // name of the worker; each of its processes has its own log
	Daemon string             // name of the dispatcher that it works for
	Began  int64              // when it was started
	Died   int64              // when it had ended; 0 = unknown
	Killed int64              // when SIGKILL was sent to it; 0 = never
	Offers map[int32][]string // types by slot
	Runs   []Execution        // in the order of their starts
	// Sessions are its connections to dispatchers, in their order.
	Sessions []Session
}

// Session is a connection of a worker.
type Session struct {
	At         int64  // when it began
	Dispatcher string // name of the dispatcher
}

// Colleague is one of several workers of a process.
type Colleague struct {
	Name       string `json:"name"`
	Log        string `json:"log"`        // file of its log
	Dispatcher string `json:"dispatcher"` // addresses of its dispatchers, separated by commas
}

// Execution is one run of a job on a slot.
type Execution struct {
	Job     int64
	Attempt int32
	Slot    int32
	Type    string
	N       int64
	Start   int64
	End     int64   // 0 = not in the log: the process died before, or the execution never returned
	Outcome Outcome // how it ended
}

// Outcome is what a worker reported or was about to report.
type Outcome string

// Outcomes.
const (
	OK      Outcome = "ok"
	Failed  Outcome = "failed"
	Refused Outcome = "refused" // permanent failure
	Stopped Outcome = "stopped" // its context ended first: lost, stale, cancelled or shut down
)

// Log appends entries of this process to a file. Nothing is appended to a nil Log.
type Log struct {
	mu  sync.Mutex
	f   *os.File
	buf bytes.Buffer
}

// CreateLog creates a log and writes the name of the process and the types of its
// slots.
func CreateLog(path, name string, offers map[int32][]string) (*Log, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND|os.O_EXCL, 0o600)
	if err != nil {
		return nil, fmt.Errorf("the log of the worker: %w", err)
	}
	j := &Log{f: f}
	j.line("process %d %s", os.Getpid(), name)
	for slot, types := range offers {
		j.line("offer %d %s", slot, strings.Join(types, ","))
	}
	return j, nil
}

// Started records that e starts. Call it before the execution does anything.
func (j *Log) Started(e *Execution) {
	j.line("start %d %d %d %d %s %d", Now(), e.Job, e.Attempt, e.Slot, e.Type, e.N)
}

// Ended records how e ended. Call it before the result is reported.
func (j *Log) Ended(e *Execution, how Outcome) {
	j.line("end %d %d %d %s", Now(), e.Job, e.Attempt, how)
}

// Connected records the begin of a session.
func (j *Log) Connected(dispatcher string) { j.line("connected %d %s", Now(), dispatcher) }

// line appends a line with a single write, which a kill cannot interrupt. A worker
// without a complete log would make the history useless, so an error ends the
// process.
func (j *Log) line(format string, args ...any) {
	if j == nil {
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.buf.Reset()
	fmt.Fprintf(&j.buf, format+"\n", args...)
	if _, err := j.f.Write(j.buf.Bytes()); err != nil {
		panic(err)
	}
}

// ReadProcess reads a log.
func ReadProcess(path string) (Process, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return Process{}, err
	}
	p := Process{Offers: map[int32][]string{}}
	open := map[attemptKey]int{}
	for number, line := range slices.Collect(bytes.Lines(text)) {
		if err := p.read(string(bytes.TrimSuffix(line, []byte("\n"))), open); err != nil {
			return p, fmt.Errorf("%s, line %d: %w", path, number+1, err)
		}
	}
	return p, nil
}

// attemptKey identifies an execution inside a process.
type attemptKey struct {
	job     int64
	attempt int32
}

var errLine = errors.New("not a line of a worker's log")

func (p *Process) read(line string, open map[attemptKey]int) error {
	word, rest, _ := strings.Cut(line, " ")
	var err error
	switch word {
	case "process":
		_, err = fmt.Sscan(rest, &p.PID, &p.Name)
	case "offer":
		var (
			slot  int32
			types string
		)
		_, err = fmt.Sscan(rest, &slot, &types)
		p.Offers[slot] = strings.Split(types, ",")
	case "connected":
		var c Session
		_, err = fmt.Sscan(rest, &c.At, &c.Dispatcher)
		p.Sessions = append(p.Sessions, c)
	case "start":
		var e Execution
		_, err = fmt.Sscan(rest, &e.Start, &e.Job, &e.Attempt, &e.Slot, &e.Type, &e.N)
		open[attemptKey{e.Job, e.Attempt}] = len(p.Runs)
		p.Runs = append(p.Runs, e)
	case "end":
		var (
			k   attemptKey
			at  int64
			how Outcome
		)
		if _, err = fmt.Sscan(rest, &at, &k.job, &k.attempt, &how); err != nil {
			break
		}
		i, ok := open[k]
		if !ok {
			return fmt.Errorf("job %d attempt %d ends without a start: %w", k.job, k.attempt, errLine)
		}
		p.Runs[i].End, p.Runs[i].Outcome = at, how
	default:
		err = errLine
	}
	if err != nil {
		return fmt.Errorf("%q: %w", line, err)
	}
	return nil
}
