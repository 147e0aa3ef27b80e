package stage

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/dispatcherd/dispatcherd/tools/lab/internal/history"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/rig"
)

// builder inserts structures: batches, flows and parents. The dice of a structure depend on its number alone.
type builder struct {
	conn   *pgx.Conn
	second *pgx.Conn // inserts members while their batch is sealed
	dice   *rand.Rand
	former int64 // a callback on which nodes of later flows depend; 0 = none
}

// InsertStructures inserts structures until they have n jobs, without the children, or ctx ends. Errors end a structure and not the
// function: Postgres may be down. At last it seals all batches.
func (s *Stage) InsertStructures(ctx context.Context, n int) error {
	b := &builder{}
	defer b.close(ctx)
	for i, jobs := 0, 0; ctx.Err() == nil && jobs < n; i++ {
		b.dice = rand.New(rand.NewPCG(uint64(i), 22))
		inserted, err := b.insert(ctx, s.URL())
		if jobs += inserted; err != nil {
			b.close(ctx)
			_ = rig.Pause(ctx, 50*time.Millisecond)
		}
	}
	return s.SealAll(context.WithoutCancel(ctx))
}

func (b *builder) close(ctx context.Context) {
	for _, conn := range []*pgx.Conn{b.conn, b.second} {
		if conn != nil {
			_ = conn.Close(context.WithoutCancel(ctx)) // rows say what was committed
		}
	}
	b.conn, b.second = nil, nil
}

// insert inserts one structure and returns the number of its jobs, without the children. It waits while many jobs wait or run.
func (b *builder) insert(ctx context.Context, url string) (n int, err error) {
	if b.conn == nil {
		if b.conn, err = pgx.Connect(ctx, url); err != nil {
			return 0, err
		}
		if b.second, err = pgx.Connect(ctx, url); err != nil {
			return 0, err
		}
	}
	for {
		busy, err := full(ctx, b.conn)
		if err != nil {
			return 0, err
		}
		if !busy {
			break
		}
		if err := rig.Pause(ctx, 20*time.Millisecond); err != nil {
			return 0, err
		}
	}
	switch k := b.dice.IntN(10); {
	case k < 5:
		return b.insertBatch(ctx)
	case k < 8:
		return b.insertFlow(ctx)
	}
	return b.insertParents(ctx)
}

// one returns true once in n times.
func (b *builder) one(n int) bool { return b.dice.IntN(n) == 0 }

func (b *builder) runWhen() string { return []string{"done", "ended", "failed"}[b.dice.IntN(3)] }

// open opens a batch; parent is an open batch or 0.
func (b *builder) open(ctx context.Context, parent int64) (batch int64, err error) {
	err = b.conn.QueryRow(ctx, `SELECT dispatcherd.open_batch(jsonb_build_object('type', $1::text), $2, NULL,
		nullif($3::bigint, 0))`, history.Callback, b.runWhen(), parent).
		Scan(&batch)
	return batch, err
}

// membersSQL inserts $2 members of batch $1. Each $3-th is refused by its worker, and each $4-th fails once; 0 = none.
const membersSQL = `INSERT INTO dispatcherd.jobs (type, payload, parent) SELECT '` + history.Member + `',
	jsonb_build_object('ms', i % 5, 'do', CASE WHEN i % nullif($3::int, 0) = 0 THEN '` + history.Refuse + `' ELSE '' END, 'fail',
		coalesce((i % nullif($4::int, 0) = 0)::int, 0)), $1::bigint
	FROM generate_series(1, $2::int) i`

// insertBatch inserts a batch in several transactions. The last one may commit while the batch is sealed. Some batches contain
// others, and some are cancelled.
func (b *builder) insertBatch(ctx context.Context) (n int, err error) {
	batch, err := b.open(ctx, 0)
	if err != nil {
		return 0, err
	}
	refuse, fail := 0, 0
	if b.one(3) {
		refuse = 2 + b.dice.IntN(100)
	}
	if b.one(3) {
		fail = 2 + b.dice.IntN(100)
	}
	for range 1 + b.dice.IntN(3) {
		size := 1 + b.dice.IntN(150)
		if _, err := b.conn.Exec(ctx, membersSQL, batch, size, refuse, fail); err != nil {
			return n, err
		}
		n += size
	}
	if b.one(8) {
		if inner, err := b.open(ctx, batch); err != nil {
			return n, err
		} else if _, err := b.conn.Exec(ctx, membersSQL, inner, 5, refuse, 0); err != nil {
			return n, err
		} else if err := b.seal(ctx, inner); err != nil {
			return n, err
		}
		n += 6
	}
	if b.one(10) {
		err = b.sealLate(ctx, batch)
		n++
	} else {
		err = b.seal(ctx, batch)
	}
	b.former = batch
	if err == nil && b.one(12) {
		err = b.cancel(ctx, batch)
	}
	return n + 1, err
}

func (b *builder) seal(ctx context.Context, batch int64) error {
	_, err := b.conn.Exec(ctx, `SELECT dispatcherd.seal_batch($1)`, batch)
	return err
}

// lateTime is how long a transaction that has inserted a member is open while its batch is sealed.
const lateTime = 30 * time.Millisecond

// sealLate seals a batch while another transaction has inserted a member and is open.
func (b *builder) sealLate(ctx context.Context, batch int64) error {
	tx, err := b.second.Begin(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }() // nothing is left to do after the commit
	if _, err := tx.Exec(ctx, membersSQL, batch, 1, 0, 0); err != nil {
		return err
	}
	sealed := make(chan error, 1)
	go func() { sealed <- b.seal(ctx, batch) }()
	_ = rig.Pause(ctx, lateTime)
	err = tx.Commit(ctx)
	if failed := <-sealed; failed != nil {
		return failed
	}
	return err
}

func (b *builder) cancel(ctx context.Context, job int64) error {
	_, err := b.conn.Exec(ctx, `INSERT INTO dispatcherd.operations (kind, target) VALUES ('cancel_tree', $1)`, job)
	return err
}

// FlowNode is an element of the document of a flow.
type FlowNode struct {
	Name         string       `json:"name"`
	Type         string       `json:"type"`
	Payload      history.Work `json:"payload"`
	After        []any        `json:"after,omitempty"`
	RunWhen      string       `json:"run_when,omitempty"`
	TakesResults bool         `json:"takes_results,omitempty"`
}

// insertFlow inserts a flow of layers; each node depends on all nodes of the layer before. A chain has layers of one node.
func (b *builder) insertFlow(ctx context.Context) (n int, err error) {
	layers, width := 2+b.dice.IntN(6), 1+b.dice.IntN(6)
	if b.one(4) {
		layers, width = 2+b.dice.IntN(40), 1
	}
	rule, refuse, results := "", b.one(3), b.one(4)
	if b.one(3) {
		rule = b.runWhen()
	}
	nodes := Layers(layers, width, history.Node)
	for i := range nodes {
		d := &nodes[i]
		d.Payload.Ms = b.dice.IntN(4)
		if refuse && b.one(20) {
			d.Payload.Do = history.Refuse
		}
		d.TakesResults = results && b.one(2)
		if len(d.After) > 0 && b.one(3) {
			d.RunWhen = rule
		}
	}
	if b.former != 0 && b.one(4) {
		nodes[0].After = []any{b.former}
		for i := range nodes[1:] {
			if b.one(3) {
				nodes[1+i].After = append(nodes[1+i].After, b.former)
			}
		}
	}
	var flow int64
	err = b.conn.QueryRow(ctx, `SELECT (dispatcherd.insert_flow($1) ->> 'id')::bigint`, map[string]any{
		"nodes": nodes, "callback": map[string]any{"type": history.Callback, "run_when": b.runWhen()},
	}).Scan(&flow)
	if err == nil && b.one(15) {
		err = b.cancel(ctx, flow)
	}
	return len(nodes) + 1, err
}

// Layers returns the nodes of a flow. Each node depends on all nodes of the layer before.
func Layers(layers, width int, typ string) (nodes []FlowNode) {
	for l := range layers {
		for w := range width {
			d := FlowNode{Name: fmt.Sprintf("%d-%d", l, w), Type: typ}
			for before := range width {
				if l > 0 {
					d.After = append(d.After, fmt.Sprintf("%d-%d", l-1, before))
				}
			}
			nodes = append(nodes, d)
		}
	}
	return nodes
}

// outliving is the time of a child in milliseconds that is longer than any parent.
const outliving = 120_000

// insertParents inserts parents, whose children end before them, with them or in between. Some parents fail once, and some are cancelled.
func (b *builder) insertParents(ctx context.Context) (n int, err error) {
	child := &history.Work{Ms: []int{0, 20, outliving}[b.dice.IntN(3)]}
	if b.one(4) { // grandchildren
		child = &history.Work{Ms: child.Ms, Do: history.Spawn, Children: 1 + b.dice.IntN(3), Child: &history.Work{Ms: outliving}}
	}
	parent := history.Work{Ms: 10 + b.dice.IntN(100), Do: history.Spawn, Children: 1 + b.dice.IntN(20), Child: child}
	if b.one(6) {
		parent.Fail = 1
	}
	payload, err := json.Marshal(parent)
	if err != nil {
		return 0, err
	}
	rows, err := b.conn.Query(
		ctx,
		`INSERT INTO dispatcherd.jobs (type, payload) SELECT $1::text, $2::jsonb FROM generate_series(1, $3::int) RETURNING id`,
		history.Parent,
		string(payload),
		1+b.dice.IntN(8),
	)
	if err != nil {
		return 0, err
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return 0, err
	}
	if b.one(4) {
		_ = rig.Pause(ctx, time.Duration(parent.Ms/2)*time.Millisecond)
		err = b.cancel(ctx, ids[0])
	}
	return len(ids), err
}

// SealAll seals the batches that lost connections have left open. It waits for Postgres.
func (s *Stage) SealAll(ctx context.Context) (err error) {
	for begun := time.Now(); time.Since(begun) < time.Minute; _ = rig.Pause(ctx, 100*time.Millisecond) {
		if err = s.Exec(
			ctx,
			`SELECT dispatcherd.seal_batch(id) FROM dispatcherd.batches
				WHERE sealed_at IS NULL AND cancelled_by IS NULL AND kind = 'batch' ORDER BY id DESC`,
		); err == nil {
			return nil
		}
	}
	return fmt.Errorf("sealing all batches: %w", err)
}
