package flowstore

// lockSQL locks target $1, or its first message if it has no row of batches. It returns whether it has, whether another transaction has,
// and whether no transaction inserts members of the target, which is cancelled.
const lockSQL = `
SELECT b.locked OR NOT b.here AND ARRAY (
		SELECT id FROM dispatcherd.ends WHERE target = $1 AND id = (SELECT id FROM dispatcherd.ends WHERE target = $1 ORDER BY id LIMIT 1)
		FOR UPDATE SKIP LOCKED) <> '{}',
	b.here AND NOT b.locked AND NOT b.aside, b.no_inserts
FROM (SELECT EXISTS (SELECT FROM dispatcherd.batches WHERE id = $1) AS here,
	EXISTS (SELECT FROM dispatcherd.batches WHERE id = $1 AND aside_at IS NOT NULL) AS aside,
	ARRAY (SELECT id FROM dispatcherd.batches WHERE id = $1 AND aside_at IS NULL FOR NO KEY UPDATE SKIP LOCKED) <> '{}' AS locked,
	ARRAY (SELECT id FROM dispatcherd.batches WHERE id = $1 AND sealed_at IS NULL AND cancelled_by IS NOT NULL AND aside_at IS NULL
		FOR UPDATE SKIP LOCKED) <> '{}' AS no_inserts
) b`

// viewSQL reads target $1 as the JSON document of a flow.View, within $2 items, and ended jobs outside the flow that are not linked. It
// reads no job that has ended, because a plan for all partitions costs much. A step links 50 jobs at most. The messages are whole ones. The
// members are read if flow.Step may have to cancel them (may_cancel), and flow.View.Looks. Waiting and pending rows that the step may move
// are locked, unless they are locked already. A repair counts at most 100,000 members, because others wait for the statement: the
// count matters when the last members end.
const viewSQL = `
WITH b AS MATERIALIZED (
	SELECT b.*, o.alive, o.asked, b.id IS NOT NULL AND b.ended_at IS NULL AND b.walk IS NULL
		AND (b.cancelled_by IS NOT NULL OR o.asked IS NOT NULL OR (b.callback OR b.kind = 'children') AND NOT o.alive) AS may_cancel
	FROM (SELECT EXISTS (SELECT FROM dispatcherd.jobs_live WHERE id = $1)
			OR EXISTS (SELECT FROM dispatcherd.jobs_waiting WHERE id = $1) AS alive,
		(SELECT coalesce(who, 'parent') FROM dispatcherd.operations WHERE kind = 'cancel' AND target = $1 ORDER BY id LIMIT 1) AS asked) o
	LEFT JOIN dispatcherd.batches b ON b.id = $1
), message AS MATERIALIZED (
	SELECT e.*, sum(coalesce(cardinality(jobs), 0)) OVER (ORDER BY id) - coalesce(cardinality(jobs), 0) AS earlier
	FROM (SELECT * FROM dispatcherd.ends WHERE target = $1 AND (SELECT walk FROM b) IS NULL ORDER BY id LIMIT $2 + 1) e
), taken AS MATERIALIZED (
	SELECT * FROM message WHERE earlier < $2 ORDER BY id LIMIT $2
), look AS MATERIALIZED (
	SELECT (SELECT may_cancel FROM b) AND EXISTS (SELECT FROM taken WHERE jobs IS NULL AND done = 0
		OR jobs[1] = $1 OR 'pending' = ANY (statuses)) AS cancels
), job AS MATERIALIZED (
	SELECT j.id, CASE WHEN j.place = 1 THEN m.part ELSE 0 END AS part, row_number() OVER (ORDER BY m.id, j.place) AS place
	FROM taken m CROSS JOIN unnest(m.jobs) WITH ORDINALITY AS j (id, place)
), listed AS MATERIALIZED (
	SELECT DISTINCT ON (id) * FROM job WHERE id <> $1 ORDER BY id, place
), edge AS MATERIALIZED (
	SELECT l.id, l.part, g.after, cardinality(g.after) - l.part AS rest,
		sum(cardinality(g.after) - l.part) OVER (ORDER BY l.place) - cardinality(g.after) + l.part AS earlier
	FROM listed l JOIN dispatcherd.edges g ON (g.before, g.flow) BETWEEN (l.id, $1) AND (l.id, $1)
), slice AS MATERIALIZED (
	SELECT id, rest, after[(part + 1)::int : (part + least(rest, greatest($2 - earlier, 0)))::int] AS after FROM edge
), ready AS MATERIALIZED (
	SELECT id FROM dispatcherd.nodes WHERE flow = $1 AND EXISTS (SELECT FROM taken WHERE jobs IS NULL AND done = 0)
		AND open <= 0 AND ready_at IS NULL AND status IS NULL ORDER BY place LIMIT $2 + 1
), node AS MATERIALIZED (
	SELECT n.*, n.ready_at IS NULL AND n.open <= h.hits AND NOT b.may_cancel AS due
	FROM (SELECT id, sum(hits) AS hits FROM (
		SELECT unnest(after) AS id, 1 AS hits FROM slice UNION ALL SELECT id, 0 FROM ready) h GROUP BY id) h
	JOIN dispatcherd.nodes n ON n.id BETWEEN h.id AND h.id CROSS JOIN b
), member AS MATERIALIZED (
	(SELECT id, status FROM dispatcherd.jobs_live j WHERE parent = $1 AND (SELECT cancels FROM look) AND (status = 'pending'
		OR NOT EXISTS (SELECT FROM dispatcherd.operations o WHERE o.kind = 'cancel' AND o.target = j.id)) ORDER BY j.id + 0 LIMIT $2 + 1)
	UNION ALL
	(SELECT id, 'waiting' FROM dispatcherd.jobs_waiting WHERE parent = $1 AND (SELECT cancels FROM look) ORDER BY id + 0 LIMIT $2 + 1)
), free AS MATERIALIZED (
	SELECT id, pg_column_size(payload) AS size FROM dispatcherd.jobs_waiting
	WHERE id = ANY (ARRAY (SELECT id FROM node WHERE due UNION ALL SELECT id FROM member WHERE status = 'waiting'
		UNION ALL SELECT $1 FROM b WHERE may_cancel OR sealed_at IS NOT NULL AND ended_at IS NULL AND walk IS NULL
			AND open <= (SELECT coalesce(sum(done + coalesce(cardinality(jobs), 0)), 0) FROM taken)))
	ORDER BY id FOR UPDATE SKIP LOCKED
), pending AS MATERIALIZED (
	SELECT id, pg_column_size(payload) AS size FROM dispatcherd.jobs_live
	WHERE id = ANY (ARRAY (SELECT id FROM member WHERE status = 'pending')) AND status = 'pending' ORDER BY id FOR UPDATE SKIP LOCKED
), sizes AS MATERIALIZED (
	SELECT jsonb_object_agg(id, size) AS of FROM (SELECT * FROM free UNION ALL SELECT * FROM pending) f
), unlinked AS MATERIALIZED (
	SELECT before AS id, EXISTS (SELECT FROM dispatcherd.jobs_live j WHERE j.id BETWEEN g.before AND g.before)
		OR EXISTS (SELECT FROM dispatcherd.jobs_waiting j WHERE j.id BETWEEN g.before AND g.before) AS live
	FROM dispatcherd.edges g WHERE flow = $1 AND NOT linked ORDER BY before LIMIT 51
), linkable AS MATERIALIZED (
	SELECT id FROM dispatcherd.jobs_live WHERE id = ANY (ARRAY (SELECT id FROM unlinked WHERE live LIMIT 50)) ORDER BY id
	FOR NO KEY UPDATE SKIP LOCKED
), waits AS MATERIALIZED (
	SELECT id FROM dispatcherd.jobs_waiting WHERE id = ANY (ARRAY (SELECT id FROM unlinked WHERE live LIMIT 50)) ORDER BY id
	FOR NO KEY UPDATE SKIP LOCKED
), flow AS MATERIALIZED (
	SELECT flow FROM dispatcherd.edges WHERE before = $1 AND linked AND flow > (SELECT part FROM job WHERE id = $1 ORDER BY place LIMIT 1)
	ORDER BY flow LIMIT $2 + 1
)
SELECT json_build_object(
	'batch', (SELECT json_build_object('id', $1::bigint, 'kind', kind, 'runwhen', run_when, 'callback', callback,
		'sealed', sealed_at IS NOT NULL, 'ended', ended_at IS NOT NULL,
		'open', open, 'done', done, 'failed', failed, 'cancelled', cancelled, 'reason', reason,
		'cancelledby', cancelled_by, 'walk', walk, 'walked', walked) FROM b),
	'messages', (SELECT json_agg(json_build_object('target', target, 'id', id, 'done', done, 'part', part, 'walk', walk, 'jobs', (
		SELECT json_agg(json_build_object('id', j.id, 'status', j.status, 'endedat', at, 'size', j.size))
		FROM unnest(jobs, statuses, sizes) AS j (id, status, size))) ORDER BY id) FROM taken),
	'moremessages', (SELECT count(*) FROM message) > (SELECT count(*) FROM taken),
	'records', (SELECT json_agg(json_build_object('id', l.id, 'status', coalesce(n.status, g.status, m.status, 'pending'),
			'endedat', coalesce(n.finished_at, g.finished_at, m.finished_at), 'size', coalesce(n.size, g.size),
			'outside', g.flow IS NOT NULL AND n.id IS NULL) ORDER BY l.id)
		FROM listed l LEFT JOIN dispatcherd.nodes n ON n.id BETWEEN l.id AND l.id AND n.flow + 0 = $1
		LEFT JOIN dispatcherd.edges g ON (g.before, g.flow) BETWEEN (l.id, $1) AND (l.id, $1)
		LEFT JOIN dispatcherd.bad_members m ON (m.batch, m.job_id) BETWEEN ($1, l.id) AND ($1, l.id)),
	'edges', (SELECT json_agg(json_build_object('before', id, 'after', after, 'more', rest > cardinality(after)) ORDER BY id) FROM slice),
	'nodes', (SELECT json_agg(json_build_object('id', n.id, 'runwhen', run_when, 'takesresults', takes_results, 'open', open, 'bad', bad,
			'inputs', inputs, 'reason', reason, 'ready', ready_at IS NOT NULL, 'waiting', coalesce((s.of ->> n.id::text)::int, CASE
				WHEN n.due AND NOT EXISTS (SELECT FROM dispatcherd.jobs_waiting w WHERE w.id = n.id) THEN -1 ELSE -2 END)) ORDER BY n.id)
		FROM node n),
	'morenodes', (SELECT count(*) FROM ready) > $2,
	'flows', (SELECT json_agg(flow ORDER BY flow) FROM (SELECT flow FROM flow ORDER BY flow LIMIT $2) f),
	'moreflows', (SELECT count(*) FROM flow) > $2,
	'alive', alive, 'asked', asked,
	'waiting', coalesce((SELECT size FROM free WHERE id = $1),
		CASE WHEN EXISTS (SELECT FROM dispatcherd.jobs_waiting WHERE id = $1) THEN -2 ELSE -1 END),
	'cancel', (SELECT json_agg(json_build_object('id', m.id, 'runs', m.status = 'running', 'waiting', coalesce((s.of ->> m.id::text)::int, -2),
			'target', EXISTS (SELECT FROM dispatcherd.batches t WHERE t.id BETWEEN m.id AND m.id AND t.ended_at IS NULL)))
		FROM (SELECT * FROM member LIMIT $2) m),
	'morecancel', (SELECT count(*) FROM member) > $2,
	'members', CASE WHEN (SELECT cancels FROM look) AND sealed_at IS NULL AND (SELECT count(*) FROM member) <= $2
		OR walk = 'repair' AND kind <> 'flow' AND open <= 100000
		THEN dispatcherd.open_members($1) ELSE open END,
	'outside', (SELECT json_agg(json_build_object('id', id, 'status', 'pending', 'busy',
			id NOT IN (SELECT id FROM linkable UNION SELECT id FROM waits)
			OR EXISTS (SELECT FROM dispatcherd.ends e WHERE e.target = u.id)) ORDER BY id) FROM (SELECT * FROM unlinked LIMIT 50) u WHERE live),
	'unlinked', (SELECT json_agg(id ORDER BY id) FROM (SELECT * FROM unlinked LIMIT 50) u WHERE NOT live),
	'moreoutside', (SELECT count(*) FROM unlinked) > 50)
FROM b CROSS JOIN sizes s`

// badSQL reads the job with the id of target $1 if it failed or was cancelled.
const badSQL = `
SELECT (SELECT json_build_object('id', id, 'status', status, 'endedat', finished_at) FROM dispatcherd.jobs
	WHERE id = $1 AND status IN ('failed', 'cancelled') LIMIT 1)`

// walkSQL reads the nodes of flow $1, or the failed and cancelled members of batch $1, the last one first, to which the walk comes next,
// behind $3: at most $2, with at most $2 dependencies. The place of a member is its negated id. In a retry ($4) one exists if its row is as
// recorded, in a repair if it has a row or its end is reported. A member whose unique key a live job has, or a later one of these members,
// does not exist.
const walkSQL = `
WITH node AS (
	SELECT *, count(*) OVER () AS total, sum(cardinality(depends_on)) OVER (ORDER BY place) - cardinality(depends_on) AS earlier
	FROM (SELECT * FROM dispatcherd.nodes WHERE flow = $1 AND place > $3 ORDER BY place LIMIT $2 + 1) n
), walked AS MATERIALIZED (
	SELECT n.id, coalesce(n.status, 'pending') AS status, n.finished_at AS endedat, place::bigint, CASE
		WHEN $4 THEN n.status IN ('failed', 'cancelled') AND EXISTS (
			SELECT FROM dispatcherd.jobs j WHERE j.id = n.id AND j.status = n.status AND j.finished_at = n.finished_at)
		ELSE n.status IS NOT NULL OR EXISTS (SELECT FROM dispatcherd.jobs j WHERE j.id = n.id)
			OR EXISTS (SELECT FROM dispatcherd.ends e WHERE e.target = $1 AND n.id = ANY (e.jobs)) END AS exists, false AS nested, total
	FROM node n WHERE earlier < $2
	UNION ALL
	SELECT m.job_id, m.status, m.finished_at, -m.job_id, j.id IS NOT NULL AND $4
		AND (j.unique_key IS NULL OR NOT EXISTS (SELECT FROM dispatcherd.jobs_live l WHERE l.unique_key = j.unique_key)
			AND row_number() OVER (PARTITION BY j.unique_key ORDER BY m.job_id DESC) = 1),
		EXISTS (SELECT FROM dispatcherd.batches t WHERE t.id = m.job_id AND t.callback), count(*) OVER ()
	FROM (SELECT * FROM dispatcherd.bad_members WHERE batch = $1 AND ($3 = 0 OR job_id < -$3) ORDER BY job_id DESC LIMIT $2 + 1) m
	LEFT JOIN dispatcherd.jobs j ON j.id BETWEEN m.job_id AND m.job_id AND j.status = m.status AND j.finished_at = m.finished_at
)
SELECT json_build_object('walk', (SELECT json_agg(w ORDER BY place) FROM (SELECT * FROM walked ORDER BY place LIMIT $2) w),
	'morewalk', (SELECT max(total) FROM walked) > (SELECT least(count(*), $2) FROM walked))`

// lockOutsideSQL locks those of jobs $1 that are not locked, wherever they are.
const lockOutsideSQL = `
SELECT json_agg(j) FROM (
	SELECT id, status, finished_at AS at, octet_length(result::text) AS size FROM dispatcherd.jobs WHERE id = ANY ($1) ORDER BY id
	FOR NO KEY UPDATE SKIP LOCKED
) j`

// outsideSQL describes jobs $1, of which lockOutsideSQL returned $2. It sees where the others are. A job is busy if another transaction has
// locked its row, or messages about it are under way.
const outsideSQL = `
SELECT json_agg(json_build_object('id', i.id, 'status', CASE WHEN l.at IS NULL THEN 'pending' ELSE l.status END, 'endedat', l.at,
	'size', l.size, 'gone', l.id IS NULL, 'busy', EXISTS (SELECT FROM dispatcherd.ends e WHERE e.target = i.id)
		OR l.id IS NULL AND EXISTS (SELECT FROM dispatcherd.jobs j WHERE j.id = i.id)) ORDER BY i.id)
FROM unnest($1::bigint[]) AS i (id)
LEFT JOIN json_to_recordset(coalesce($2::json, '[]')) AS l (id bigint, status text, at timestamptz, size int) ON l.id = i.id`
