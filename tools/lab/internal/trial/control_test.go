package trial

import (
	"os"
	"strings"
	"testing"

	"github.com/dispatcherd/dispatcherd/tools/lab/internal/stage"
)

// If a statement that a control alters changes, the control must be changed as
// well.
func TestEveryControlMatchesTheSource(t *testing.T) {
	root, err := stage.ProductDir(t.Context())
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
		overlay, err := writeOverlay(root, t.TempDir(), c.Cuts)
		if err != nil {
			t.Errorf("%s: %v", c.Name, err)
			continue
		}
		text, err := os.ReadFile(overlay)
		if err != nil || !strings.Contains(string(text), sourceFile(root, c.Cuts[0].File)) {
			t.Errorf("%s: the overlay does not name %s: %s (%v)", c.Name, c.Cuts[0].File, text, err)
		}
	}
}

func TestControlThatDoesNotMatchIsAnError(t *testing.T) {
	root, err := stage.ProductDir(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	_, err = writeOverlay(root, t.TempDir(), []Cut{{File: "claim/finish.go", Old: "no such text", Times: 1}})
	if err == nil || !strings.Contains(err.Error(), "the source has changed") {
		t.Errorf("got %v", err)
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
