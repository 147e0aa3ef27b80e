package e2e

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/claim"
	"github.com/dispatcherd/dispatcherd/worker"
)

// numbers is an array of equal numbers. jsonb writes all their digits.
func numbers(number string, n int) string {
	return "[" + strings.Repeat(number+",", n-1) + number + "]"
}

// Payloads that are long only as text are rejected at each entrance. Small rows of producers, and
// rows of former versions, fail and stop no other job. Memory stays within its limit and four
// claims, each of which reads one text of 64 MB.
func TestPayloadsThatAreTooLongAsTextNeedNoMemory(t *testing.T) {
	if runtime.GOOS != "linux" || raceFactor > 1 {
		t.Skip("the test reads /proc, and the race detector uses more memory than the daemon")
	}
	const slots, memory, textOfClaims = 64, 40 << 20, 256 << 20
	w := newWorldAlone(t)
	cfg := w.config("d")
	process := w.serve(cfg, "--memory-bytes", strconv.Itoa(memory))
	sdk := worker.New(worker.Options{Socket: cfg.WorkerSocket, Name: "w"})
	sdk.Slots(slots, "x")
	result := numbers("1e1000", 58_000)
	sdk.Handle("x", func(context.Context, *worker.Job) (any, error) { return json.RawMessage(result), nil })
	ctx, end := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- sdk.Run(ctx) }()

	c := callerOn(t, cfg)
	for range 12 {
		for path, durable := range map[string]string{"/v1/requests": `"durable":true,`, "/v1/jobs": ""} {
			got := c.ask(http.MethodPost, path, `{"type":"x",`+durable+`"payload":`+result+`}`)
			require.Equal(t, http.StatusUnprocessableEntity, got.StatusCode, got.body)
			require.Contains(t, got.body, "more than 8388608 bytes when all digits are written out")
		}
	}
	w.exec(`ALTER DOMAIN dispatcherd.payload DROP CONSTRAINT payload_is_at_most_1_megabyte_and_8_as_text`)
	w.exec(`INSERT INTO dispatcherd.jobs (type, payload) SELECT 'x', $1::text::jsonb FROM generate_series(1, 20)`, numbers("1e131071", 40))
	var long []dispatcherd.JobID
	for _, payload := range []string{numbers("1e131071", 500), numbers("1e1000", 58_000), numbers("1e131071", 2000), numbers("1e1000", 200)} {
		for range 3 {
			id, err := w.jobs.Insert(t.Context(), claim.New{Type: "x", Payload: []byte(payload)})
			require.NoError(t, err)
			long = append(long, id)
		}
	}
	w.exec(`INSERT INTO dispatcherd.jobs (type, payload) SELECT 'x', '{}' FROM generate_series(1, 100)`)
	for _, id := range long[:9] {
		require.Contains(t, string(w.await(id, dispatcherd.Failed).Errors), "the payload cannot be")
	}
	w.awaitCounts(map[dispatcherd.Status]int64{dispatcherd.Done: 103, dispatcherd.Failed: 29})
	require.Equal(t, sha256.Sum256([]byte(result)), sha256.Sum256(w.await(long[9], dispatcherd.Done).Result), "a result is stored as it is")
	end()
	require.NoError(t, <-ended)
	limit, most := int64(metricsOn(t, cfg)["dispatcherd_memory_limit_bytes"]), peak(t, process.pid())
	t.Logf("at most %d MB", most/1e6)
	require.Less(t, most, limit+textOfClaims+programPages)
}
