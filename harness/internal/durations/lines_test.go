package durations

import "testing"

func TestOnlyLinesOfCodeCount(t *testing.T) {
	if n := added([]byte(`diff --git a/a.go b/a.go
--- a/a.go
+++ b/a.go
@@ -1 +1,4 @@ func f() {
-	return 1
+	// A comment.
+
+	x := 1
+	return x
--- a/b.sql
+++ b/b.sql
+-- A comment.
`)); n != 1 {
		t.Errorf("%d lines of code are added, want 1", n)
	}
}
