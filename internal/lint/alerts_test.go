package lint

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// text reads a file of the repository.
func text(t *testing.T, path ...string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(append([]string{"..", ".."}, path...)...))
	require.NoError(t, err)
	return string(content)
}

var (
	alertName  = regexp.MustCompile(`- alert: (\w+)`)
	runbookURL = regexp.MustCompile(`runbook_url: \S+/docs/operations\.md#(\w+)\n`)
	metricName = regexp.MustCompile(`dispatcherd_\w+`)
	eventName  = regexp.MustCompile(`(?:what|outcome|limit)=~?"([\w|]+)"`)
)

func TestEachAlertHasARunbook(t *testing.T) {
	rules, runbook := text(t, "packaging", "prometheus", "rules.yml"), text(t, "docs", "operations.md")
	alerts := alertName.FindAllStringSubmatch(rules, -1)
	links := runbookURL.FindAllStringSubmatch(rules, -1)
	require.NotEmpty(t, alerts)
	require.Len(t, links, len(alerts))
	for i, alert := range alerts {
		require.Equal(t, strings.ToLower(alert[1]), links[i][1])
		require.Contains(t, runbook, "\n### "+alert[1]+"\n", "docs/operations.md needs a section that says what to do")
	}
}

// An end-to-end test compares docs/metrics.md with the metrics of a daemon.
func TestAlertsUseDocumentedMetrics(t *testing.T) {
	document := text(t, "docs", "metrics.md")
	rules := text(t, "packaging", "prometheus", "rules.yml")
	for _, name := range metricName.FindAllString(rules, -1) {
		require.Contains(t, document, "\n| `"+name+"` |")
	}
	for _, values := range eventName.FindAllStringSubmatch(rules, -1) {
		for value := range strings.SplitSeq(values[1], "|") {
			require.Contains(t, document+text(t, "docs", "glossary.md"), value)
		}
	}
}
