package e2e

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
)

// Postgres commits a row, but its answer does not arrive in time. The caller gets a 503. A
// repetition with the same key returns the result of that row. No second row is inserted,
// neither while the first one is still being written nor afterwards.
func TestRowOfUnknownOutcomeIsNotInsertedTwice(t *testing.T) {
	w := newWorld(t)
	h, _ := w.startCallee(1)
	w.exec(`CREATE FUNCTION dispatcherd.lingers() RETURNS trigger LANGUAGE plpgsql AS $$
	BEGIN
		IF NEW.priority = 1 THEN
			PERFORM pg_sleep(5.5); -- longer than any deadline
		END IF;
		RETURN NULL;
	EXCEPTION WHEN query_canceled THEN
		BEGIN
			PERFORM pg_sleep(0.5);
		EXCEPTION WHEN query_canceled THEN -- the server's own timeout may come on top of the caller's
		END;
		RETURN NULL;
	END $$`)
	w.exec(`CREATE TRIGGER lingers AFTER INSERT ON dispatcherd.jobs_live FOR EACH ROW EXECUTE FUNCTION dispatcherd.lingers()`)
	const body = `{"type":"pdf","durable":true,"priority":1,"payload":{"result":1}}`
	c := h.caller()
	got := c.request(body, "Idempotency-Key", "k")
	require.Equal(t, http.StatusServiceUnavailable, got.StatusCode, got.body)
	require.Contains(t, got.problem(t).Detail, "a repeated request with the same Idempotency-Key finds out")
	for range 2 {
		got = c.request(body, "Idempotency-Key", "k")
		require.Equal(t, http.StatusOK, got.StatusCode, got.body)
	}
	w.awaitCounts(map[dispatcherd.Status]int64{dispatcherd.Done: 1})
	require.Equal(t, 1, w.number(`SELECT count(*) FROM dispatcherd.jobs`))
}
