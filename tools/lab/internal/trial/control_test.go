package trial

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dispatcherd/dispatcherd/tools/lab/internal/rig"
)

// If a statement that a control alters changes, the control must be changed as
// well.
func TestEveryControlMatchesTheSource(t *testing.T) {
	lab, err := rig.Lab(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	altered := All()
	for _, c := range Controls() {
		altered = append(altered, &c.Trial)
	}
	for _, c := range altered {
		if len(c.Cuts) == 0 {
			continue
		}
		overlay, err := writeOverlay(filepath.Join(lab, "..", ".."), t.TempDir(), c.Cuts)
		if err != nil {
			t.Errorf("%s: %v", c.Name, err)
			continue
		}
		text, err := os.ReadFile(overlay)
		if err != nil || !strings.Contains(string(text), sourceFile(filepath.Join(lab, "..", ".."), c.Cuts[0].File)) {
			t.Errorf("%s: the overlay does not name %s: %s (%v)", c.Name, c.Cuts[0].File, text, err)
		}
	}
}

func TestControlThatDoesNotMatchIsAnError(t *testing.T) {
	lab, err := rig.Lab(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	_, err = writeOverlay(filepath.Join(lab, "..", ".."), t.TempDir(), []Cut{{File: "claim/finish.go", Old: "no such text", Times: 1}})
	if err == nil || !strings.Contains(err.Error(), "the source has changed") {
		t.Errorf("got %v", err)
	}
}

func TestCutMatchesASourceThatIsFormattedInAnotherWay(t *testing.T) {
	old := formatted("SET a = b\n\tWHERE f(c, d) > $1")
	for text, want := range map[string]bool{
		"SET a = b WHERE f(c, d) > $1":                   true,
		"SET  a = b\nWHERE f(\n\t\tc,\n\t\td,\n\t) > $1": true,
		"SET a = b WHERE f(c, e) > $1":                   false,
		"SET a = b WHERE f(c, d) >= $1":                  false,
	} {
		if got := old.MatchString(text); got != want {
			t.Errorf("%q matches: %t", text, got)
		}
	}
}

func TestTrialNamesAreUnique(t *testing.T) {
	seen := map[string]bool{}
	all := append(All(), Smoke()...)
	for _, c := range Controls() {
		all = append(all, &c.Trial)
	}
	for _, x := range all {
		if x.Name == "" || x.About == "" || seen[x.Name] {
			t.Errorf("the trial %q has no unique name or no description", x.Name)
		}
		seen[x.Name] = true
	}
}
