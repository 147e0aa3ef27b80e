package main

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/cmd/dispatcherd/internal/cli"
	"github.com/dispatcherd/dispatcherd/internal/exit"
	"github.com/dispatcherd/dispatcherd/worker"
	"github.com/dispatcherd/dispatcherd/workerproto"
)

func (a *app) workerCommand() *cobra.Command {
	return cli.Group("worker", "Run a worker, or list and drain the connected ones",
		append([]*cobra.Command{a.workerRunCommand(), a.WorkerListCommand()}, a.WorkerDrainCommands()...)...)
}

const workerRunLong = `Offers slots and runs COMMAND once for each job, with the payload on its standard input. Its
output is the result. Exit code 0 means done, 65 (EX_DATAERR) failed for good; after any other
code the job is retried. A job with more than 512 KiB of output fails for good. The end of the
error output is stored with a failure. COMMAND does not inherit DATABASE_URL, TRACEPARENT,
libpq's PG* and DISPATCHERD_* (--env passes one). DISPATCHERD_JOB_ID, DISPATCHERD_TYPE,
DISPATCHERD_ATTEMPT, DISPATCHERD_JOB_TOKEN and, with keys, DISPATCHERD_FENCE describe the job.
TRACEPARENT is its W3C trace context, if it has one. The worker reconnects until it is stopped.
SIGKILL of the worker kills COMMAND (on Linux), but not its children; a systemd unit or a
container ends these. As process 1 of a container, the worker also reaps the processes that
COMMAND leaves behind.`

// workerRun are the settings of worker run.
type workerRun struct {
	types, env               []string
	socket, name, dispatcher string
	order                    string // of the dispatchers
	proofs                   workerproto.Credentials
	slots                    int
	grace                    time.Duration
}

func (a *app) workerRunCommand() *cobra.Command {
	o := workerRun{slots: 1, grace: 30 * time.Second, order: "listed"}
	cmd := &cobra.Command{
		Use: "run --types TYPE[,TYPE…] -- COMMAND [ARGUMENT…]", Short: "Run a program once for each job", Long: workerRunLong,
		Example: `  dispatcherd worker run --types pdf,excel --slots 4 -- ./convert --fast
  dispatcherd worker run --types echo -- cat
  dispatcherd worker run --dispatcher tls://a.example:7411 --token-file token --ca ca.crt \
      --types pdf -- ./convert`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 || cmd.ArgsLenAtDash() != 0 {
				return exit.Usagef("give the program after --, as in: worker run --types pdf -- ./convert")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if os.Getpid() == 1 {
				return asInit()
			}
			outliveLog()
			if err := o.check(args[0]); err != nil {
				return err
			}
			program, err := exec.LookPath(args[0])
			if err != nil {
				return exit.Usagef("cannot run %s: %w; every job would fail", args[0], err)
			}
			find := func() string { return o.socket }
			if !cmd.Flags().Changed("worker-socket") { // a dispatcher of the user may start or end meanwhile
				find = func() string { o.socket = a.FindSocket("worker.sock"); return o.socket }
			}
			if o.dispatcher != "" {
				find, o.socket = nil, o.dispatcher
			}
			w := a.newWorker(cmd.Context(), &o, find)
			a.Say("offering %s to the dispatcher on %s", cli.Counted(o.slots, "slot"), o.socket)
			handler := a.sayingWhatFailed((&worker.Program{Path: program, Args: args[1:], Env: o.env}).Handle)
			for _, t := range o.types {
				w.Handle(t, handler)
			}
			w.Slots(o.slots, o.types...)
			return w.Run(cmd.Context())
		},
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&o.types, "types", nil, "types that the program supports, separated by commas")
	flags.StringSliceVar(&o.env, "env", nil, "withheld variables to pass to COMMAND, by name")
	cli.Number(flags, &o.slots, "slots", "1", "100000", "largest number of concurrent runs")
	flags.StringVar(&o.name, "worker-name", "", "name of the worker (default: host and process id)")
	cli.OnlyOnCommandLine(flags)
	o.socket = a.FindSocket("worker.sock")
	flags.Var(cli.Socket(&o.socket, new(workerproto.Access)), "worker-socket", "the dispatcher's socket")
	flags.StringVar(&o.dispatcher, "dispatcher", "",
		"addresses of dispatchers instead of --worker-socket: tls://host:port and tcp://127.0.0.1:port, or unix:///path, separated by commas")
	flags.Var(cli.OneOf(&o.order, "listed", "random"), "dispatcher-order",
		"listed: all workers use the first dispatcher, the next one stands by; random: they are spread over the dispatchers")
	cli.ProofFlags(flags, "", &o.proofs)
	cli.Number(flags, &o.grace, "worker-grace", "0s", cli.Longest, "time for running programs to end when the worker stops")
	return cmd
}

// newWorker returns a worker that says what happens to its connection.
func (a *app) newWorker(ctx context.Context, o *workerRun, find func() string) *worker.Worker {
	said := "" // why there is no connection
	return worker.New(worker.Options{
		FindSocket: find, Dispatcher: o.dispatcher, Credentials: o.proofs, RandomOrder: o.order == "random",
		Name: o.name, Grace: max(o.grace, 1), // 0 would select the default
		Connected: func(hello workerproto.Welcome) {
			said = ""
			a.Say("connected to %s on %s", hello.Dispatcher, o.socket)
			a.sayWhatIsIdle(hello, o.slots)
		},
		Complaint: func(e *workerproto.Error) { a.Say("refused by the dispatcher: %v", e) },
		Disconnected: func(err error) {
			if text := reasonOf(err) + whatKeepsOut(err, o.socket); ctx.Err() == nil && text != said {
				said = text
				a.Say("not connected, retrying: %s", text)
			}
		},
	})
}

// reasonOf is the text of a connection error.
func reasonOf(err error) string {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return "the dispatcher closed the connection"
	}
	return err.Error()
}

// whatKeepsOut returns what the user can do if a retry cannot succeed, and otherwise
// "".
func whatKeepsOut(err error, socket string) string {
	if errors.Is(err, fs.ErrPermission) {
		return "; this user may not open it: run the worker as root or in the group of the socket and its directory (--worker-socket of serve)"
	}
	if told, ok := errors.AsType[*workerproto.Error](err); ok && told.Code == workerproto.BadJSON {
		return "; the socket does not use the worker protocol: give the dispatcher's worker socket as --worker-socket"
	}
	if info, err := os.Stat(socket); err == nil && info.Mode().Type() != os.ModeSocket {
		return "; this is not a socket: give the dispatcher's worker socket as --worker-socket"
	}
	return ""
}

// check checks the settings.
func (o *workerRun) check(program string) error {
	if err := checkTypes(o.types, program); err != nil {
		return err
	}
	if strings.Contains(strings.Join(o.env, ","), "=") {
		return exit.Usagef("--env takes names of variables without values: set the variable for the worker and give its name")
	}
	if o.dispatcher == "" {
		if err := workerproto.CheckSocketPath(o.socket); err != nil {
			return exit.Usagef("--worker-socket: %w", err)
		}
		return nil
	}
	if _, err := workerproto.ParseWorkerAddresses(o.dispatcher); err != nil {
		return exit.Usagef("--dispatcher: %w", err)
	}
	if err := o.proofs.Check(); err != nil {
		return exit.Usagef("%w", err)
	}
	return nil
}

// checkTypes removes the blanks of "a, b", and refuses types that the dispatcher would refuse.
func checkTypes(types []string, program string) error {
	if len(types) == 0 {
		return exit.Usagef("--types is missing: name the types of jobs that %s can do", program)
	}
	for i, t := range types {
		t = strings.TrimSpace(t)
		types[i] = t
		if t == "" {
			return exit.Usagef("--types names an empty type in %q: remove the extra comma", strings.Join(types, ","))
		}
		if err := dispatcherd.CheckType(t); err != nil {
			return exit.Usagef("--types names %q: %w", t, err)
		}
	}
	if len(types) > dispatcherd.MaxSlotTypes {
		return exit.Usagef("--types names %d types; a slot takes at most %d", len(types), dispatcherd.MaxSlotTypes)
	}
	return nil
}

// sayWhatIsIdle reports slots that the dispatcher does not accept.
func (a *app) sayWhatIsIdle(hello workerproto.Welcome, slots int) {
	if most := hello.Limits.MaxSlots; most > 0 && slots > most {
		a.Say("%s accepts %s of one worker, not %d: the other slots stay idle", hello.Dispatcher, cli.Counted(most, "slot"), slots)
	}
}

// outcomeOf says how a program ended that did not succeed. It quotes nothing that the program wrote.
func outcomeOf(ctx context.Context, err error) string {
	for _, cause := range []error{worker.ErrTimeout, worker.ErrCancelled, worker.ErrStale, worker.ErrLost, worker.ErrStopping} {
		if errors.Is(context.Cause(ctx), cause) {
			return cause.Error()
		}
	}
	if ended, ok := errors.AsType[*exec.ExitError](err); ok {
		return ended.String() // "exit status 65", "signal: killed"
	}
	if _, ok := errors.AsType[*fs.PathError](err); ok {
		return "the program did not start"
	}
	return "its output cannot be a result"
}

// sayingWhatFailed reports each job that did not succeed. It does not quote the error, which
// may contain the payload.
func (a *app) sayingWhatFailed(run worker.Handler) worker.Handler {
	return func(ctx context.Context, job *worker.Job) (any, error) {
		result, err := run(ctx, job)
		if err != nil {
			a.Say("%s job %d attempt %d (%s) did not succeed: %s", cli.Stamp(time.Now()), job.ID,
				job.Attempt, job.Type, outcomeOf(ctx, err))
		}
		return result, err
	}
}
