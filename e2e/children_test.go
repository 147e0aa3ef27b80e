package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/claim"
	"github.com/dispatcherd/dispatcherd/worker"
)

// family is a worker whose jobs insert children. Its handlers wait for the test.
type family struct {
	t       *testing.T
	spawned chan []dispatcherd.JobID // results of Spawn
	refused chan error
	ended   chan dispatcherd.JobID // jobs whose context ended
	proceed chan error             // what the next handler returns
}

// member says what a job does: insert children, then wait for the end of its context or for
// family.proceed.
type member struct {
	Children []worker.Child `json:"children,omitempty"`
	Detached bool           `json:"detached,omitempty"`
	Silent   bool           `json:"silent,omitempty"` // it does not return when its context has ended
}

func (w *world) family(socket string, slots int, types ...string) *family {
	w.t.Helper()
	f := &family{
		t:       w.t,
		spawned: make(chan []dispatcherd.JobID, 1000),
		refused: make(chan error, 1000),
		ended:   make(chan dispatcherd.JobID, 1000),
		proceed: make(chan error, 1000),
	}
	p := worker.New(worker.Options{Socket: socket, Name: "family"})
	for _, typ := range types {
		p.Handle(typ, f.handle)
	}
	p.Slots(slots, types...)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	w.t.Cleanup(func() {
		close(f.proceed)
		cancel()
		<-ended // the daemon may have ended before
	})
	return f
}

func (f *family) handle(ctx context.Context, job *worker.Job) (any, error) {
	var m member
	if err := job.Decode(&m); err != nil {
		return nil, err
	}
	if len(m.Children) > 0 {
		spawn := job.Spawn
		if m.Detached {
			spawn = job.SpawnDetached
		}
		ids, err := spawn(ctx, m.Children...)
		if err != nil {
			f.refused <- err
			return nil, worker.Permanent(err)
		}
		f.spawned <- ids
	}
	done := ctx.Done()
	for {
		select {
		case err := <-f.proceed:
			return nil, err
		case <-done:
			f.ended <- job.ID
			if !m.Silent {
				return nil, ctx.Err()
			}
			done = nil
		}
	}
}

// insertMember inserts a job of a family.
func (w *world) insertMember(typ string, m member) dispatcherd.JobID {
	w.t.Helper()
	payload, err := json.Marshal(m)
	require.NoError(w.t, err)
	id, err := w.jobs.Insert(w.t.Context(), claim.New{Type: typ, Payload: payload})
	require.NoError(w.t, err)
	return id
}

// orphans counts live children whose parent has ended.
func (w *world) orphans() int {
	return w.number(
		`SELECT count(*) FROM dispatcherd.jobs_live c JOIN dispatcherd.jobs p ON p.id = c.parent
			WHERE p.status IN ('done', 'failed', 'cancelled')`,
	)
}

// Article 4, structured concurrency: children end with their parent, however it ends.
func TestChildrenEndWithTheirParentUnlessTheyAreDetached(t *testing.T) {
	w := newWorld(t)
	a, b := w.start(w.config("a")), w.start(w.config("b"))
	parents := w.family(a.cfg.WorkerSocket, 1, "parent")
	children := w.family(b.cfg.WorkerSocket, 1, "child")
	a.awaitSlots(1)
	b.awaitSlots(1)
	two := []worker.Child{{Type: "child"}, {Type: "child"}} // one runs on the other host, one waits
	for status, end := range map[dispatcherd.Status]func(dispatcherd.JobID){
		dispatcherd.Done:   func(dispatcherd.JobID) { parents.proceed <- nil },
		dispatcherd.Failed: func(dispatcherd.JobID) { parents.proceed <- worker.Permanent(errors.New("torn")) },
		dispatcherd.Cancelled: func(id dispatcherd.JobID) {
			_, err := w.jobs.Cancel(t.Context(), id)
			require.NoError(t, err)
			require.Equal(t, id, receive(t, parents.ended, "the parent is cancelled"))
		},
	} {
		parent := w.insertMember("parent", member{Children: two})
		ids := receive(t, parents.spawned, "the children are inserted")
		require.Len(t, ids, 2)
		b.awaitState("busy", ids[0])
		end(parent)
		w.await(parent, status)
		require.Equal(t, ids[0], receive(t, children.ended, "the child that runs is cancelled"))
		for _, id := range ids {
			require.Zero(t, w.await(id, dispatcherd.Cancelled).Failures)
		}
	}
	require.Zero(t, w.orphans())
	b.awaitSlots(1)

	parent := w.insertMember("parent", member{Children: two, Detached: true})
	ids := receive(t, parents.spawned, "the children are inserted")
	b.awaitState("busy", ids[0])
	parents.proceed <- nil
	w.await(parent, dispatcherd.Done)
	children.proceed <- nil
	w.await(ids[0], dispatcherd.Done)
	children.proceed <- nil
	w.await(ids[1], dispatcherd.Done)
}

// Attack 4: a parent is cancelled while its spawns commit. Each child is refused or cancelled.
func TestNoChildIsLeftBehindByACancelDuringSpawn(t *testing.T) {
	w := newWorld(t)
	h := w.start(w.config("d"))
	const slots = 4
	p := worker.New(worker.Options{Socket: h.cfg.WorkerSocket, Name: "spawner"})
	p.Handle("parent", func(ctx context.Context, job *worker.Job) (any, error) {
		for {
			if _, err := job.Spawn(context.WithoutCancel(ctx), worker.Child{Type: "child"}, worker.Child{Type: "child"}); err != nil {
				return nil, worker.Permanent(err)
			}
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
		}
	})
	p.Handle("child", func(context.Context, *worker.Job) (any, error) { return nil, nil })
	p.Slots(slots, "parent")
	p.Slots(slots, "child")
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		<-ended
	})
	const parents = 40
	for range parents {
		id := w.insertMember("parent", member{})
		eventually(t, func() bool {
			return w.number(`SELECT count(*) FROM dispatcherd.jobs WHERE parent = $1`, id) > 2
		}, func() string { return "some children" })
		_, err := w.jobs.Cancel(t.Context(), id)
		require.NoError(t, err)
		eventually(t, func() bool { return w.get(id).Status.Final() }, func() string { return "the end of the parent" })
	}
	eventually(t, func() bool {
		return w.number(
			`SELECT count(*) FROM dispatcherd.jobs_live WHERE parent IS NOT NULL`,
		)+w.number(
			`SELECT count(*) FROM dispatcherd.ends`,
		) == 0
	}, func() string { return fmt.Sprintf("no live child; there are %d orphans", w.orphans()) })
	require.Zero(
		t,
		w.number(`SELECT count(*) FROM dispatcherd.jobs c JOIN dispatcherd.jobs p ON p.id = c.parent WHERE c.created_at > p.finished_at`),
		"a child was inserted after the end of its parent",
	)
}

// With --allow-api a worker may insert children of the types only that its user may use as a
// caller.
func TestWorkerNeedsTheRightsOfACallerForItsChildren(t *testing.T) {
	w := newWorld(t)
	cfg := w.config("d")
	require.NoError(t, cfg.AllowAPI.Set(fmt.Sprintf("pdf=%d;payroll=%d", os.Getuid(), stranger)))
	h := w.start(cfg)
	parents := w.family(h.cfg.WorkerSocket, 1, "pdf")
	parent := w.insertMember("pdf", member{Children: []worker.Child{{Type: "pdf"}, {Type: "payroll"}}})
	refusal, ok := errors.AsType[*worker.SpawnError](receive(t, parents.refused, "the spawn is refused"))
	require.True(t, ok)
	require.Equal(t, dispatcherd.RuleTypeIsPermitted, refusal.Rule)
	require.Contains(t, refusal.Reason, `may not use jobs of type "payroll"`)
	w.await(parent, dispatcherd.Failed)
	require.Zero(t, w.number(`SELECT count(*) FROM dispatcherd.jobs WHERE parent IS NOT NULL OR type = 'payroll'`))
	w.insertMember("pdf", member{Children: []worker.Child{{Type: "pdf"}}})
	receive(t, parents.spawned, "the permitted child is inserted")
}
