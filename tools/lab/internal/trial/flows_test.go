package trial

import "testing"

// If a migration changes the text that a control removes, the control must be changed as well.
func TestControlsOfFlowsMatchTheSchema(t *testing.T) {
	conn := migrated(t)
	for _, sql := range []string{earlyOut, sealedByAll} {
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Error(err)
		}
		if _, err := conn.Exec(t.Context(), sql); err == nil {
			t.Error("the text is still there")
		}
	}
}
