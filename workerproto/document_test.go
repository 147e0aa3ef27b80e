package workerproto

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/internal/jsontext"
)

func document(t *testing.T) string {
	text, err := os.ReadFile("../docs/reference/protocol.md")
	require.NoError(t, err)
	return string(text)
}

func TestEveryExampleInTheDocumentIsAFrame(t *testing.T) {
	ops := map[string]bool{}
	workers, callers, _ := strings.Cut(document(t), "\n## 11. Callers\n")
	for _, block := range regexp.MustCompile("(?s)```json\n(.*?)```").FindAllStringSubmatch(callers, -1) {
		for line := range strings.SplitSeq(strings.TrimSpace(block[1]), "\n") {
			requireCallerFrame(t, line)
			ops["caller "+string(new(codec).begin([]byte(line)))] = true
		}
	}
	for _, op := range []string{"hello", "request", "cancel", "welcome", "answer", "queued", "started", "progress", "partial", "gap"} {
		require.True(t, ops["caller "+op], "no example of %s", op)
	}
	for _, block := range regexp.MustCompile("(?s)```json\n(.*?)```").FindAllStringSubmatch(workers, -1) {
		for line := range strings.SplitSeq(strings.TrimSpace(block[1]), "\n") {
			fromWorker, err1 := NewWorkerDecoder().Decode([]byte(line))
			fromDispatcher, err2 := NewDispatcherDecoder(false).Decode([]byte(line))
			require.True(t, err1 == nil || err2 == nil, "%s: %v, %v", line, err1, err2)
			if err1 == nil {
				require.Equal(t, line+"\n", string(Append(nil, fromWorker)))
			}
			if err2 == nil {
				require.Equal(t, line+"\n", string(Append(nil, fromDispatcher)))
			}
			ops[string(new(codec).begin([]byte(line)))] = true
		}
	}
	for _, f := range everyWorkerFrame() {
		op := string(new(codec).begin(Append(nil, f)))
		require.True(t, ops[op], "no example of %s", op)
		require.Contains(t, document(t), op)
	}
	for _, f := range everyDispatcherFrame() {
		op := string(new(codec).begin(Append(nil, f)))
		require.True(t, ops[op], "no example of %s", op)
	}
}

// requireCallerFrame requires that a line is a frame between a caller and a dispatcher.
func requireCallerFrame(t *testing.T, line string) {
	fromCaller, err1 := NewCallerDecoder().Decode([]byte(line))
	toCaller, err2 := NewDispatcherDecoder(true).Decode([]byte(line))
	require.True(t, err1 == nil || err2 == nil, "%s: %v, %v", line, err1, err2)
	if err1 == nil {
		require.Equal(t, line+"\n", string(Append(nil, fromCaller)))
	} else {
		require.Equal(t, line+"\n", string(Append(nil, toCaller)))
	}
}

func TestTheDocumentListsEveryCodeAndWhetherItIsFatal(t *testing.T) {
	rows := regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\| (yes|no) \\|").FindAllStringSubmatch(document(t), -1)
	listed := map[Code]bool{}
	for _, row := range rows {
		listed[Code(row[1])] = row[2] == "yes"
	}
	codes := map[Code]bool{}
	for _, code := range Codes() {
		codes[code] = Complain(code, "").Fatal
	}
	require.Equal(t, codes, listed)
}

func TestDocumentStatesTheDefaults(t *testing.T) {
	text := document(t)
	l := Limits{}.WithDefaults()
	require.Equal(t, 1048576, l.MaxFrame)
	require.Contains(t, text, "default 1,048,576")
	require.Equal(t, 65536, MinFrame)
	require.Contains(t, text, "never less than 65,536")
	require.Equal(t, 128, jsontext.MaxDepth)
	require.Contains(t, text, "most 128 arrays and objects")
	require.Equal(t, 1024, l.Outbox)
	require.Contains(t, text, "at most 1,024 frames and two for each slot")
	require.Contains(t, text, `"max_frame":1048576,"heartbeat_ms":5000,"timeout_ms":15000,"max_slots":10000,"max_types":4096`)
	require.Equal(t, Parameters{MaxFrame: 1048576, Heartbeat: 5e9, Timeout: 15e9, MaxSlots: 10000, MaxTypes: 4096}, l.parameters(false))
	require.Equal(t, 4096, l.MaxRequests)
	require.Contains(t, text, "`max_requests` of the welcome (4,096)")
	require.Equal(t, int64(31622400000), maxDelay.Milliseconds())
	require.Contains(t, text, "31,622,400,000")
	require.Equal(t, 8192, MaxMessageLength)
	require.Contains(t, text, "8,192 bytes")
}
