package claim

import (
	"context"

	"github.com/dispatcherd/dispatcherd/internal/contract"
)

// MaxMembers bounds the result of Exchange.
const MaxMembers = 100

// stateOf is the state of dispatcher d as of contract.Dispatcher.
const stateOf = `CASE WHEN d.leaving THEN 'leaving' WHEN d.lost_at IS NOT NULL THEN 'lost'
	WHEN d.away_by IS NOT NULL THEN 'drained' ELSE 'running' END`

// exchangeSQL writes the summary $2 of dispatcher $1. If $3, it asks the other dispatchers for theirs, and reads those that they wrote
// before. It reads at most $4 dispatchers, and at most $5 troubles of each kind.
const exchangeSQL = `
WITH written AS (
	INSERT INTO dispatcherd.summaries (dispatcher, written_at, asked_at, summary)
	SELECT d.id, clock_timestamp(), CASE WHEN $3::boolean THEN now() END, $2::text::json FROM dispatcherd.dispatchers d
	WHERE d.id = $1::int AND d.lost_at IS NULL
	ON CONFLICT (dispatcher) DO UPDATE SET written_at = excluded.written_at, asked_at = excluded.asked_at, summary = excluded.summary
), asked AS MATERIALIZED (
	SELECT pg_notify('` + Channel + `', 'watch') WHERE $3 AND dispatcherd.may_notify()
), refused AS (
	SELECT 'schedule_refused' AS kind, name, error AS why FROM dispatcherd.schedules WHERE error IS NOT NULL ORDER BY name LIMIT $5::int
), aside AS (
	SELECT 'flow_set_aside' AS kind, b.kind || ' ' || b.id AS name, b.aside AS why FROM dispatcherd.batches b
	WHERE b.aside_at IS NOT NULL ORDER BY b.aside_at LIMIT $5
)
SELECT d.id, d.name, ` + stateOf + ` AS state, d.started_at, clock_timestamp() AS read_at,
	greatest(extract(epoch FROM clock_timestamp() - d.beat_at), 0)::float8 AS heartbeat_age,
	s.written_at, CASE WHEN d.id <> $1 THEN s.summary::text END AS text,
	CASE WHEN d.id = $1 AND (SELECT count(*) FROM asked) >= 0 THEN
		(SELECT json_agg(json_build_array(kind, name, left(why, 500)))::text FROM (TABLE refused UNION ALL TABLE aside) t) END AS troubles
FROM dispatcherd.dispatchers d LEFT JOIN dispatcherd.summaries s ON s.dispatcher = d.id
WHERE $3 ORDER BY d.id = $1 DESC, d.lost_at IS NULL DESC, d.name, d.id LIMIT $4::int`

// Exchange writes the summary of a dispatcher for the others. With ask, it asks them for theirs, and returns the dispatchers of the
// table, its own row first. The summaries are those that were written before: the answers are read by the next call.
func (j Jobs) Exchange(ctx context.Context, me int32, summary []byte, ask bool) ([]contract.Member, error) {
	return List[contract.Member](ctx, j.DB, exchangeSQL, me, string(summary), ask, MaxMembers, maxTroubles)
}

// maxTroubles bounds the troubles of one kind.
const maxTroubles = 11
