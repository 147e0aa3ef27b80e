package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/exit"
	"github.com/dispatcherd/dispatcherd/worker"
	"github.com/dispatcherd/dispatcherd/workerproto"
)

// The tests start this test binary again as a Go worker. The environment variable e2ePlan
// contains its plan.
const (
	e2eRole = "DISPATCHERD_E2E_ROLE"
	e2ePlan = "DISPATCHERD_E2E_PLAN"
)

// A child process must not run the tests. It ends when its standard input ends, so it also ends
// when the test is killed.
func init() {
	role := os.Getenv(e2eRole)
	if role == "" {
		return
	}
	_ = os.Unsetenv(e2eRole) // programs that it starts must not inherit the variable
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // the process ends however its input ends
		os.Exit(exit.Interrupted)
	}()
	switch role {
	case "worker":
		os.Exit(runE2EWorker())
	case "relay":
		os.Exit(runRelay())
	}
	fmt.Fprintln(os.Stderr, "unknown role", role)
	os.Exit(exit.Usage)
}

// workerScript describes a Go worker. It has a handler for every type in Handles, whether
// offered or not, so that it can report a job of a type that it did not offer.
type workerScript struct {
	Socket  string
	Name    string
	Reports string // Unix socket on which the test receives reports
	Slots   []scriptSlots
	Handles []string
	Grace   time.Duration
	UID     int // user and group to switch to before connecting; 0 = no change
}

type scriptSlots struct {
	N     int
	Types []string
}

// work is a payload for such a worker.
type work struct {
	Do     string          `json:"do,omitempty"`     // see perform; "" = succeed
	Times  int             `json:"times,omitempty"`  // number of attempts of "fail" that fail
	Result json.RawMessage `json:"result,omitempty"` // result of a success
	Error  string          `json:"error,omitempty"`  // error of a failure
	Secret string          `json:"secret,omitempty"` // text that must not appear in a log or a metric
	Bytes  int             `json:"bytes,omitempty"`  // length of the result of "big"
	Nap    string          `json:"nap,omitempty"`    // duration of "nap"
}

// sighting is what a worker reports about an execution.
type sighting struct {
	What    string // "start", "end" or "alien" (a type that the worker did not offer)
	Worker  string
	PID     int
	Job     dispatcherd.JobID
	Attempt dispatcherd.Attempt
	Type    string
	At      int64 // nanoseconds since the epoch: all processes share the machine's clock
}

// e2eWorker is the worker process.
type e2eWorker struct {
	plan  workerScript
	mu    sync.Mutex
	out   *json.Encoder
	gates map[dispatcherd.JobID]chan struct{}
}

func runE2EWorker() int {
	w := &e2eWorker{gates: map[dispatcherd.JobID]chan struct{}{}}
	err := json.Unmarshal([]byte(os.Getenv(e2ePlan)), &w.plan)
	if err == nil {
		err = w.run()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "worker:", err)
		return exit.Internal
	}
	return exit.OK
}

// become changes the user and the group of this process.
func become(uid, gid int, groups ...int) error {
	return errors.Join(syscall.Setgroups(groups), syscall.Setgid(gid), syscall.Setuid(uid))
}

func (w *e2eWorker) run() error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	conn, err := net.Dial("unix", w.plan.Reports)
	if err != nil {
		return err
	}
	w.out = json.NewEncoder(conn)
	if w.plan.UID != 0 {
		if err := become(w.plan.UID, w.plan.UID); err != nil {
			return err
		}
	}
	go w.openGates(conn)
	sdk := worker.New(worker.Options{
		Socket: w.plan.Socket, Name: w.plan.Name, Grace: w.plan.Grace, MaxBackoff: 100 * time.Millisecond,
	})
	offered := map[int32][]string{}
	number := int32(0)
	for _, s := range w.plan.Slots {
		sdk.Slots(s.N, s.Types...)
		for range s.N {
			offered[number] = s.Types
			number++
		}
	}
	for _, typ := range w.plan.Handles {
		sdk.Handle(typ, func(ctx context.Context, job *worker.Job) (any, error) {
			if !slices.Contains(offered[job.Slot], job.Type) {
				w.say("alien", job)
			}
			w.say("start", job)
			defer w.say("end", job)
			return w.perform(ctx, job)
		})
	}
	return sdk.Run(ctx)
}

func (w *e2eWorker) say(what string, job *worker.Job) {
	w.mu.Lock()
	defer w.mu.Unlock()
	_ = w.out.Encode(sighting{ // the test has ended, so this process ends as well
		What: what, Worker: w.plan.Name, PID: os.Getpid(), Job: job.ID, Attempt: job.Attempt, Type: job.Type, At: time.Now().UnixNano(),
	})
}

// openGates reads job ids from the test and ends their "gate" jobs.
func (w *e2eWorker) openGates(r io.Reader) {
	for lines := bufio.NewScanner(r); lines.Scan(); {
		id, err := strconv.ParseInt(lines.Text(), 10, 64)
		if err != nil {
			panic(err)
		}
		close(w.gate(dispatcherd.JobID(id)))
	}
}

func (w *e2eWorker) gate(id dispatcherd.JobID) chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.gates[id] == nil {
		w.gates[id] = make(chan struct{})
	}
	return w.gates[id]
}

// perform does what the payload says.
func (w *e2eWorker) perform(ctx context.Context, job *worker.Job) (any, error) {
	var p work
	if err := job.Decode(&p); err != nil {
		return nil, err
	}
	result := p.Result
	if result == nil {
		result = json.RawMessage(fmt.Sprintf(`{"by":%q,"attempt":%d}`, w.plan.Name, job.Attempt))
	}
	switch p.Do {
	case "":
		return result, nil
	case "fail":
		if int(job.Attempt) <= p.Times {
			return nil, errors.New(p.Error)
		}
		return result, nil
	case "permanent":
		return nil, worker.Permanent(errors.New(p.Error))
	case "die":
		os.Exit(exit.Internal)
	case "die-once":
		if job.Attempt == 1 {
			os.Exit(exit.Internal)
		}
		return result, nil
	case "big":
		return string(slices.Repeat([]byte(p.Secret), p.Bytes/len(p.Secret)+1)), nil
	case "chat":
		job.Progress(1, 2, p.Secret)
		job.Log(workerproto.LevelWarn, "%s", p.Secret)
		return result, job.Partial(p.Secret)
	case "nap":
		d, err := time.ParseDuration(p.Nap)
		if err != nil {
			return nil, worker.Permanent(err)
		}
		select {
		case <-time.After(d):
			return result, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	case "gate": // waits until the test opens the gate or the dispatcher cancels the job
		select {
		case <-w.gate(job.ID):
			return result, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	case "stubborn": // waits until the test opens the gate, even if the dispatcher cancels the job
		<-w.gate(job.ID)
		return result, nil
	}
	return nil, worker.Permanent(fmt.Errorf("what is %q?", p.Do))
}
