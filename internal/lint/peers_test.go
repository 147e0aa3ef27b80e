package lint

import (
	"fmt"
	"go/ast"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const (
	peerFaults = 40
	peerPrefix = "TestPeer_"
)

var (
	peerLine   = regexp.MustCompile(`^\| B(\d\d) \|(.*)\|$`)
	peerTest   = regexp.MustCompile("`(" + peerPrefix + `\w+)` + "`")
	peerReason = regexp.MustCompile(`cannot exist here: \w+ \w+`)
)

// checkPeers compares the table of faults of other queues with the names of the
// existing tests.
func checkPeers(table string, tests []string) (found []string) {
	seen := map[string]bool{}
	named := map[string]bool{}
	for line := range strings.Lines(table) {
		m := peerLine.FindStringSubmatch(strings.TrimSpace(line))
		if m == nil {
			continue
		}
		if seen[m[1]] {
			found = append(found, "B"+m[1]+" has two lines")
		}
		seen[m[1]] = true
		names := peerTest.FindAllStringSubmatch(m[2], -1)
		if len(names) == 0 && !peerReason.MatchString(m[2]) {
			found = append(found, "B"+m[1]+" has neither a test nor the words \"cannot exist here: \" with a reason")
		}
		for _, n := range names {
			named[n[1]] = true
			if !slices.Contains(tests, n[1]) {
				found = append(found, "B"+m[1]+" names "+n[1]+", which does not exist")
			}
			if !strings.Contains(n[1], "_B"+m[1]+"_") {
				found = append(found, "B"+m[1]+" names "+n[1]+", whose name refers to another fault")
			}
		}
	}
	for n := 1; n <= peerFaults; n++ {
		if !seen[fmt.Sprintf("%02d", n)] {
			found = append(found, fmt.Sprintf("B%02d has no line", n))
		}
	}
	for _, name := range tests {
		if !named[name] {
			found = append(found, name+" is not in the table")
		}
	}
	return found
}

// peerTests returns the tests of all packages that are named after such a fault.
func peerTests(all []source) (names []string) {
	for _, s := range all {
		for _, d := range s.file.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && s.test() && strings.HasPrefix(fn.Name.Name, peerPrefix) {
				names = append(names, fn.Name.Name)
			}
		}
	}
	return names
}

func TestEveryFaultOfOtherQueuesHasItsTest(t *testing.T) {
	table, err := os.ReadFile(filepath.Join(root, "docs", "reliability-peers.md"))
	require.NoError(t, err)
	all, err := sources()
	require.NoError(t, err)
	report(t, checkPeers(string(table), peerTests(all)))
}

func TestFaultsWithoutATestAreRejected(t *testing.T) {
	var b strings.Builder
	for n := 3; n <= peerFaults; n++ {
		fmt.Fprintf(&b, "| B%02d | x | y | cannot exist here: nothing leads | |\n", n)
	}
	rest := b.String()
	good := "| B01 | x | y | `TestPeer_B01_B02_A` | `p` |\n| B02 | x | y | `TestPeer_B01_B02_A`<br>`TestPeer_B02_B` | |\n"
	require.Empty(t, checkPeers(good+rest, []string{"TestPeer_B01_B02_A", "TestPeer_B02_B"}))
	require.Len(t, checkPeers(good+rest, []string{"TestPeer_B01_B02_A"}), 1)
	require.Len(t, checkPeers(good+rest, []string{"TestPeer_B01_B02_A", "TestPeer_B02_B", "TestPeer_B03_C"}), 1)
	require.Len(t, checkPeers(rest, nil), 2)
	require.Len(t, checkPeers(good+good+rest, []string{"TestPeer_B01_B02_A", "TestPeer_B02_B"}), 2)
	require.Len(t, checkPeers("| B01 | x | y | `TestPeer_B02_B` | |\n| B02 | x | y | | |\n"+rest, []string{"TestPeer_B02_B"}), 2)
}
