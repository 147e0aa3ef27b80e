package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/actor"
	"github.com/dispatcherd/dispatcherd/cmd/dispatcherd/internal/console"
	"github.com/dispatcherd/dispatcherd/cmd/dispatcherd/internal/settings"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/exit"
	"github.com/dispatcherd/dispatcherd/internal/journal"
)

// replayFlags choose what of a recording is shown.
type replayFlags struct {
	at   int
	job  int64
	why  bool
	show string
}

func (a *app) replayCommand() *cobra.Command {
	var f replayFlags
	cmd := &cobra.Command{
		Use: "replay FILE", Short: "Step through the decisions of a recorded dispatcher",
		Long: `Takes every step of a recording again, in a core of its own, and prints each event with the effects
that came of it. The effects are compared with those of then: the same state and the same events give the
same effects, and the first step where they differ is named (exit code 1). Files come from
"dispatcherd debug bundle" and from failing simulations. The program must be the one that recorded.`,
		Example: "  dispatcherd replay incident.journal | less\n  dispatcherd replay incident.journal --job 17 --why\n" +
			"  dispatcherd replay incident.journal --at 4711      # one step, and the state after it\n" +
			"  dispatcherd replay incident.journal --show metrics",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return fmt.Errorf("%q takes one file, got %d arguments", cmd.CommandPath(), len(args))
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error { return a.replay(args[0], f) },
	}
	cmd.Flags().IntVar(&f.at, "at", 0, "show this step alone, with the state after it")
	cmd.Flags().Int64Var(&f.job, "job", 0, "show only steps about this job")
	cmd.Flags().BoolVar(&f.why, "why", false, "show the score of every placement by term; with --job, also why it waits")
	cmd.Flags().StringVar(&f.show, "show", "", "print a text of the file instead: version, configuration, metrics or goroutines")
	settings.OnlyOnCommandLine(cmd.Flags(), "at", "job", "why", "show")
	settings.Between(cmd.Flags(), "1", settings.LargestID, "at", "job")
	return cmd
}

func (a *app) replay(path string, flags replayFlags) (err error) {
	in, err := os.Open(path)
	if err != nil {
		return exit.Errorf(exit.NotFound, "%w", err)
	}
	defer func() { _ = in.Close() }() // it was only read
	file, err := journal.Read(in)
	if err != nil {
		return exit.Errorf(exit.Usage, "%s: %w", path, err)
	}
	if flags.show != "" {
		text, ok := file.Text(flags.show)
		if !ok {
			return exit.Errorf(exit.NotFound, "%s has no text %q; it has: %s", path, flags.show, strings.Join(textNames(file), ", "))
		}
		_, err := a.Out.Write(text)
		return err
	}
	p := &replayPrinter{app: a, file: file, flags: flags, out: bufio.NewWriter(a.Out), asked: actor.Inquiry{ID: dispatcherd.JobID(flags.job)}}
	if err := file.Replay(p.step); err != nil {
		return exit.Errorf(exit.Usage, "%s: %w", path, errors.Join(err, p.out.Flush()))
	}
	return p.end(path)
}

func textNames(f *journal.File) []string {
	var names []string
	for _, t := range f.Texts {
		names = append(names, t.Name)
	}
	return names
}

// replayPrinter prints steps as they are taken.
type replayPrinter struct {
	app     *app
	file    *journal.File
	flags   replayFlags
	out     *bufio.Writer
	segment *journal.Segment
	steps   int
	shown   int
	differs int           // number of the first step that does
	asked   actor.Inquiry // the job, as far as it was seen
	over    string        // how it has ended; "" = it has not, as far as was seen
	list    []shownStep   // for JSON
}

// shownStep is one step as JSON shows it.
type shownStep struct {
	Step     int       `json:"step"`
	Recorder string    `json:"recorder"`
	At       time.Time `json:"at"`
	Event    string    `json:"event"`
	Effects  []string  `json:"effects,omitempty"`
	Why      []string  `json:"why,omitempty"`
	Differs  bool      `json:"differs,omitempty"`
}

func (p *replayPrinter) step(s *journal.Step) error {
	p.steps++
	if s.Differs() && p.differs == 0 {
		p.differs = s.Number
	}
	p.learn(s.Event)
	p.follow(s)
	if !p.wanted(s) && p.differs != s.Number {
		return nil
	}
	p.shown++
	one := shownStep{Step: s.Number, Recorder: s.Segment.Name, At: s.At, Event: journal.DescribeEvent(s.Event), Differs: s.Differs()}
	for i := range s.Effects {
		e := &s.Effects[i]
		text := journal.DescribeEffect(e)
		if e.Kind == actor.Send && p.flags.why {
			text += fmt.Sprintf(" because %v; %d types on the slot, capacity %d", e.Why.Terms, e.Why.SlotTypes, e.Why.Capacity)
		}
		one.Effects = append(one.Effects, text)
	}
	switch {
	case !p.flags.why || p.flags.job == 0:
	case p.over != "":
		one.Why = []string{"it has ended: " + p.over}
	default:
		one.Why = p.whyLines(s.Core.Explain(p.asked))
	}
	if p.app.Format.JSON {
		p.list = append(p.list, one)
		return nil
	}
	p.print(s, &one)
	return nil
}

// wanted reports whether the flags ask for a step.
func (p *replayPrinter) wanted(s *journal.Step) bool {
	if p.flags.at != 0 && p.flags.at != s.Number {
		return false
	}
	if p.flags.job == 0 {
		return true
	}
	id := dispatcherd.JobID(p.flags.job)
	return p.flags.at == s.Number || journal.Mentions(s.Event, id) ||
		slices.ContainsFunc(s.Effects, func(e actor.Effect) bool { return journal.Mentions(e, id) })
}

// learn remembers what an event said about the row of the job that is asked
// about, and forgets it when the row is written anew: a retry has another run_at.
func (p *replayPrinter) learn(ev actor.Event) {
	id := p.asked.ID
	switch ev := ev.(type) {
	case actor.Fetched:
		for _, c := range ev.Result.Candidates {
			if c.Key.ID == id && c.Lane < len(ev.Request.Lanes) {
				lane := ev.Request.Lanes[c.Lane]
				p.asked.Type, p.asked.Priority, p.asked.RunAt = lane.Type, lane.Priority, c.Key.RunAt
			}
		}
	case actor.Announced:
		if ev.Row.Key.ID == id {
			p.asked.Type, p.asked.Priority, p.asked.RunAt = ev.Row.Type, ev.Row.Priority, ev.Row.Key.RunAt
		}
	case actor.Finished:
		ended := func(f contract.Finish) bool { return f.ID == id }
		if ev.Result.Verdict == contract.OK && slices.ContainsFunc(ev.Request.Items, ended) {
			p.asked = actor.Inquiry{ID: id}
		}
	}
}

// follow notes the end of the job that is asked about, and that it is there again.
func (p *replayPrinter) follow(s *journal.Step) {
	if p.flags.job == 0 {
		return
	}
	id := dispatcherd.JobID(p.flags.job)
	switch ev := s.Event.(type) {
	case actor.Finished:
		for _, f := range ev.Request.Items {
			switch {
			case f.ID != id || ev.Result.Verdict != contract.OK:
			case slices.Contains(ev.Result.Stale, id):
				p.over = fmt.Sprintf("attempt %d was somebody else's by then", f.Attempt)
			case f.Outcome.Final():
				p.over = f.Outcome.String()
			}
		}
	case actor.Claimed:
		if slices.ContainsFunc(ev.Result.Won, func(won contract.Won) bool { return won.ID == id }) {
			p.over = ""
		}
	case actor.Fetched:
		if slices.ContainsFunc(ev.Result.Candidates, func(c contract.Candidate) bool { return c.Key.ID == id }) {
			p.over = ""
		}
	}
	for i := range s.Effects {
		if e := &s.Effects[i]; e.Kind == actor.Answer && e.Job == id {
			p.over = e.Answer.String()
		}
	}
}

func (p *replayPrinter) print(s *journal.Step, one *shownStep) {
	if p.segment == nil || p.segment.Name != s.Segment.Name {
		fmt.Fprintf(p.out, "# %s, from %s\n", s.Segment.Name, s.Segment.Begin.Format(time.RFC3339))
	}
	p.segment = s.Segment
	fmt.Fprintf(p.out, "%d  %s  %s\n", one.Step, one.At.Format("15:04:05.000"), console.OneLine(one.Event))
	for _, e := range one.Effects {
		fmt.Fprintf(p.out, "    → %s\n", console.OneLine(e))
	}
	for _, w := range one.Why {
		fmt.Fprintf(p.out, "    why: %s\n", console.OneLine(w))
	}
	if s.Differs() {
		fmt.Fprintf(p.out, "    DIFFERS: then %d effects with hash %08x, now %d with hash %08x\n",
			s.Recorded.Effects, s.Recorded.Hash, s.Replayed.Effects, s.Replayed.Hash)
	}
	if p.flags.at != 0 {
		p.printState(s.Core)
	}
}

// shownSlots is how many slots a state lists.
const shownSlots = 40

// printState shows what the core knows.
func (p *replayPrinter) printState(c *actor.Core) {
	fmt.Fprintf(p.out, "state: %+v\n", c.Gauges())
	for _, t := range c.Types() {
		fmt.Fprintf(p.out, "  type %s: capacity %d, free %d, read ahead %d, requests %d, oldest %v\n",
			console.OneLine(t.Name), t.Capacity, t.Free, t.Cached, t.Requests, t.Oldest)
	}
	slots := c.Slots()
	for i := range slots[:min(len(slots), shownSlots)] {
		s := &slots[i]
		fmt.Fprintf(p.out, "  slot %d %s/%d [%s] %s", s.ID, console.OneLine(s.Worker), s.Number, console.OneLine(strings.Join(s.Types, " ")), s.State)
		if s.Job != 0 {
			fmt.Fprintf(p.out, " with job %d attempt %d", s.Job, s.Attempt)
		}
		fmt.Fprintln(p.out)
	}
	if more := len(slots) - shownSlots; more > 0 {
		fmt.Fprintf(p.out, "  … %d more slots\n", more)
	}
}

// whyLines say where the job stands. Of a row that is in Postgres alone nothing
// is said but that, until an event tells what is in it.
func (p *replayPrinter) whyLines(x actor.Explanation) []string {
	if x.Type == "" && p.asked.ID > 0 {
		return []string{"it is in Postgres: no step so far tells its type and when it is due"}
	}
	var reasons []string
	for _, r := range x.Reasons {
		reasons = append(reasons, string(r))
	}
	lines := []string{fmt.Sprintf("%s; score %v", strings.Join(reasons, ", "), x.Terms)}
	capacity := fmt.Sprintf("capacity %d, free %d", x.Capacity, x.Free)
	switch {
	case x.Rank > 0 && x.Waiting > 0:
		lines = append(lines, fmt.Sprintf("rank %d of %d of its type, %d of %d in all; %s", x.Rank, x.Waiting, x.RankAll, x.WaitingAll, capacity))
	case x.Rank > 0:
		lines = append(lines, capacity)
	}
	return lines
}

// end says how it went.
func (p *replayPrinter) end(path string) error {
	if p.app.Format.JSON {
		if err := p.app.PrintJSON("steps", p.list); err != nil {
			return err
		}
	}
	if err := p.out.Flush(); err != nil {
		return err
	}
	for _, t := range p.file.Texts {
		if t.Name == journal.TextMissing {
			p.app.Say("%s", strings.TrimSpace(string(t.Content)))
		}
	}
	switch {
	case p.differs != 0:
		return exit.Errorf(exit.Negative, "%s: step %d does something else than it did when it was recorded", path, p.differs)
	case p.steps == 0:
		return exit.Errorf(exit.Negative, "%s holds no step: the recorder was too small for the state, see --recorder-bytes", path)
	case p.shown == 0 && p.flags.at != 0:
		return exit.Errorf(exit.NotFound, "%s has %s, and none of them is %d", path, console.Counted(int64(p.steps), "step"), p.flags.at)
	case p.shown == 0:
		return exit.Errorf(exit.NotFound, "none of the %s in %s is about job %d", console.Counted(int64(p.steps), "step"), path, p.flags.job)
	}
	p.app.Say("%s, all with the effects of then", console.Counted(int64(p.steps), "step"))
	return nil
}
