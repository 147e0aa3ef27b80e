package flow

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
)

var rewrite = flag.Bool("rewrite", false, "write the output of the scenario files anew")

// scenario executes the commands of a file on tables in memory. Each block is commands, ----, and what they have changed:
//
//	batch ID [when=…] [in=ID]       opens a batch with a callback, perhaps as the member of another one
//	member ID in=ID                 inserts a member, or a child of a running job
//	seal ID
//	flow ID [when=…] NODE…          a node is ID[:when][<ID,ID…]
//	run ID…                         claims pending jobs
//	end ID STATUS                   ends a running or pending job
//	again ID                        retries an ended job
//	cancel ID, retry ID, repair ID  operations on a batch or flow
//	drop ID                         retention deletes the row of a job
//	step ID [N]                     does a step, with at most N items
//	steps [N]                       does steps until none is left, and prints their number
type scenario struct {
	*memory
	t     *testing.T
	shown map[string]string // what was printed about a job or target
	out   strings.Builder
}

func TestScenarios(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			s := &scenario{memory: newMemory(1), t: t, shown: map[string]string{}}
			s.check = func(*node) {}
			var blocks []string
			for block := range strings.SplitSeq(strings.TrimSpace(string(text)), "\n\n") {
				input, _, _ := strings.Cut(block, "----\n")
				blocks = append(blocks, strings.TrimRight(input, "\n")+"\n----\n"+s.block(input))
			}
			output := strings.Join(blocks, "\n")
			if *rewrite {
				require.NoError(t, os.WriteFile(file, []byte(output), 0o600))
				return
			}
			require.Equal(t, string(text), output)
		})
	}
}

// block executes a block and returns its output.
func (s *scenario) block(input string) string {
	s.out.Reset()
	for line := range strings.Lines(input) {
		if words := strings.Fields(line); len(words) > 0 && words[0] != "#" {
			s.do(words)
		}
	}
	s.show()
	return s.out.String()
}

func number64(s string) dispatcherd.JobID {
	n, _ := strconv.ParseInt(s, 10, 64)
	return dispatcherd.JobID(n)
}

// option returns the value of an option of a command.
func option(words []string, name, otherwise string) string {
	for _, w := range words {
		if value, found := strings.CutPrefix(w, name+"="); found {
			return value
		}
	}
	return otherwise
}

func (s *scenario) do(words []string) {
	id := dispatcherd.JobID(0)
	if len(words) > 1 {
		id = number64(words[1])
	}
	m := s.memory
	m.id = max(m.id, int64(id))
	switch b, j := m.batches[id], m.jobs[id]; words[0] {
	case "batch":
		m.batches[id] = &Batch{ID: id, Kind: "batch", RunWhen: option(words, "when", "done"), Callback: true}
		m.insert(id, number64(option(words, "in", "")), dispatcherd.Waiting).watched = true
	case "member":
		parent := number64(option(words, "in", ""))
		if m.batches[parent] == nil {
			m.batches[parent] = &Batch{ID: parent, Kind: kindChildren, RunWhen: "done"}
			m.jobs[parent].watched = true
		}
		m.insert(id, parent, dispatcherd.Pending)
	case "seal":
		b.Sealed, b.Open = true, m.members(id)
		m.send(Message{Target: id})
	case "flow":
		s.flow(id, words[2:])
	case "run":
		for _, w := range words[1:] {
			m.jobs[number64(w)].status = dispatcherd.Running
		}
	case "end":
		m.end(j, dispatcherd.Status(words[2]))
	case "again":
		m.again(j, dispatcherd.Pending, 0)
	case "cancel":
		b.CancelledBy = "user"
		m.send(Message{Target: id})
	case Retry, Repair:
		m.send(Message{Target: id, Walk: words[0]})
	case "drop":
		j.dropped = true
	case "step":
		s.step(id, limits(words[2:]))
	case "steps":
		s.drain(limits(words[1:]))
	default:
		require.Fail(s.t, "unknown command", "%v", words)
	}
}

func limits(words []string) Limits {
	if len(words) == 0 {
		return Full
	}
	n := int(number64(words[0]))
	return Limits{Items: n, Bytes: 10 * n}
}

func (s *scenario) flow(id dispatcherd.JobID, words []string) {
	b := &Batch{ID: id, Kind: kindFlow, RunWhen: option(words, "when", "done"), Callback: true, Sealed: true}
	s.batches[id] = b
	s.insert(id, 0, dispatcherd.Waiting).watched = true
	for _, word := range words {
		if strings.HasPrefix(word, "when=") {
			continue
		}
		name, after, _ := strings.Cut(word, "<")
		name, when, _ := strings.Cut(name, ":")
		n := &node{Node: Node{ID: number64(name), RunWhen: "done"}, flow: id, place: int64(b.Open + 1), Final: open}
		if when != "" {
			n.RunWhen = when
		}
		for before := range strings.SplitSeq(after, ",") {
			if before != "" {
				n.after = append(n.after, number64(before))
			}
		}
		n.Open, n.Ready = len(n.after), len(n.after) == 0
		s.nodes[id], s.node[n.ID] = append(s.nodes[id], n), n
		status := dispatcherd.Waiting
		if n.Ready {
			status = dispatcherd.Pending
		}
		s.insert(n.Node.ID, id, status).listed = true
		for _, before := range n.after {
			(&history{memory: s.memory}).addEdge(id, before, n.ID)
		}
		b.Open++
	}
	s.send(Message{Target: id})
}

func (s *scenario) drain(l Limits) {
	n := 0
	for ; len(s.ends) > 0; n++ {
		require.Less(s.t, n, 1000, "steps do not end")
		s.step(slices.Sorted(maps.Keys(s.ends))[0], l)
	}
	fmt.Fprintf(&s.out, "steps: %d\n", n)
}

// show prints what has changed.
func (s *scenario) show() {
	note := func(key, text string) {
		if s.shown[key] != text {
			s.shown[key] = text
			fmt.Fprintf(&s.out, "%s: %s\n", key, text)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(s.jobs)) {
		j := s.jobs[id]
		text := string(j.status)
		if j.asked {
			text += ", asked to end"
		}
		if n := s.node[id]; n != nil && !n.Ready {
			text += fmt.Sprintf(", %d open, %d bad", n.Open, n.Bad)
		}
		note(fmt.Sprintf("job %d", id), text)
	}
	for _, id := range slices.Sorted(maps.Keys(s.batches)) {
		b := s.batches[id]
		text := fmt.Sprintf("%d open, %d done, %d failed, %d cancelled", b.Open, b.Done, b.Failed, b.Cancelled)
		var textSb213 strings.Builder
		for _, state := range []struct {
			is   bool
			what string
		}{
			{!b.Sealed, "unsealed"}, {b.Ended, "ended"}, {b.Walk != "", b.Walk + " under way"},
			{b.CancelledBy != "", "cancelled by " + b.CancelledBy},
		} {
			if state.is {
				textSb213.WriteString(", " + state.what)
			}
		}
		text += textSb213.String()
		note(fmt.Sprintf("%s %d", b.Kind, id), text)
	}
	left := []string{}
	for _, id := range slices.Sorted(maps.Keys(s.ends)) {
		left = append(left, fmt.Sprintf("%d for %d", len(s.ends[id]), id))
	}
	note("messages", strings.Join(left, ", "))
}
