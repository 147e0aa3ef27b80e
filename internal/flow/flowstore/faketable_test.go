package flowstore

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/claim/claimfake"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/flow"
)

// model is a world and a claimfake.Table in which the same happens.
type model struct {
	*world
	random *rand.Rand
	table  *claimfake.Table
	client *claimfake.Client
	now    int64
	ids    []int64 // of all jobs
	token  byte
}

// do executes a statement on the table.
func (m *model) do(s *claimfake.Statement) *claimfake.Statement {
	m.now++
	s.Do(m.now)
	m.client.Answered(s, s.Verdict)
	return s
}

func (m *model) row(id int64) claimfake.Row {
	m.ids = append(m.ids, id)
	return claimfake.Row{ID: dispatcherd.JobID(id), Type: "x"}
}

var runWhens = []string{claimfake.WhenDone: "done", claimfake.WhenEnded: "ended", claimfake.WhenFailed: "failed"}

// insertFlow inserts a flow with up to seven nodes, which also depend on jobs outside of it.
func (m *model) insertFlow() {
	var nodes []claimfake.Join
	var texts []string
	var after [][]int // earlier nodes
	count := 1 + m.random.IntN(7)
	for n := range count {
		var j claimfake.Join
		var names []string
		after = append(after, nil)
		for e := range n {
			if m.random.IntN(3) == 0 {
				after[n] = append(after[n], e)
				names = append(names, fmt.Sprintf(`"n%d"`, e))
			}
		}
		if len(m.ids) > 0 && m.random.IntN(3) == 0 {
			id := m.ids[m.random.IntN(len(m.ids))]
			j.After = append(j.After, dispatcherd.JobID(id))
			names = append(names, strconv.FormatInt(id, 10))
		}
		if len(names) > 0 {
			j.RunWhen = claimfake.RunWhen(m.random.IntN(3))
		}
		nodes = append(nodes, j)
		texts = append(
			texts,
			fmt.Sprintf(`{"name": "n%d", "type": "x", "run_when": "%s", "after": [%s]}`, n, runWhens[j.RunWhen], strings.Join(names, ", ")),
		)
	}
	when := claimfake.RunWhen(m.random.IntN(3))
	id, byName := m.flow(
		fmt.Sprintf(`{"callback": {"type": "x", "run_when": "%s"}, "nodes": [%s]}`, runWhens[when], strings.Join(texts, ", ")),
	)
	for n := range nodes {
		nodes[n].Row = m.row(byName[fmt.Sprint("n", n)])
		for _, e := range after[n] {
			nodes[n].After = append(nodes[n].After, nodes[e].ID)
		}
	}
	m.table.InsertFlow(m.now, claimfake.Join{Row: m.row(id), RunWhen: when}, nodes)
}

// insertBatch inserts a batch. Some of its members end, and some of these ends are counted, before it is sealed.
func (m *model) insertBatch() {
	when := claimfake.RunWhen(m.random.IntN(3))
	id := m.open(runWhens[when])
	m.table.OpenBatch(m.now, claimfake.Join{Row: m.row(id), RunWhen: when})
	for _, member := range m.members(id, m.random.IntN(5)) {
		r := m.row(member)
		r.Parent = dispatcherd.JobID(id)
		m.table.Insert(m.now, r)
	}
	for range m.random.IntN(4) {
		m.end()
	}
	if m.random.IntN(2) == 0 {
		m.countBoth()
	}
	m.seal(id)
	require.True(m.t, m.table.SealBatch(m.now, dispatcherd.JobID(id)))
}

// end claims a pending job, perhaps inserts children, and ends it. Or it cancels a job that waits.
func (m *model) end() {
	id := m.ids[m.random.IntN(len(m.ids))]
	switch status := m.status(id); {
	case status != "waiting" && status != "pending":
	case m.random.IntN(8) == 0:
		require.Equal(m.t, 1, get[int](m.world, `SELECT dispatcherd.end_idle(ARRAY[$1::bigint], 'cancelled', session_user, NULL)`, id))
		m.table.Cancel(dispatcherd.JobID(id))
	case status == "pending":
		won := m.claim(id)
		m.token++
		claimed := m.do(
			m.client.Claim(
				&contract.ClaimRequest{IDs: []dispatcherd.JobID{won[0].ID}, Sessions: make([]contract.Fingerprint, 1), Token: [16]byte{m.token, 1}},
			),
		)
		require.Equal(m.t, won[0].Target, claimed.Claimed.Won[0].Target)
		if m.random.IntN(4) == 0 &&
			!get[bool](m.world, `SELECT EXISTS (SELECT FROM dispatcherd.batches WHERE id = $1 AND kind <> 'children')`, id) {
			m.spawn(won[0])
		}
		outcome := []contract.Outcome{contract.Succeeded, contract.Succeeded, contract.FailedFinal, contract.Cancelled}[m.random.IntN(4)]
		require.Empty(m.t, m.finish(won, outcome, "").Stale)
		m.do(m.client.Finish(&contract.FinishRequest{Items: []contract.Finish{{ID: won[0].ID, Attempt: won[0].Attempt, Outcome: outcome}}}))
	}
}

// spawn inserts children of a job that runs.
func (m *model) spawn(parent contract.Won) {
	ids, refused := m.children(int64(parent.ID), int32(parent.Attempt), 2, false)
	require.Nil(m.t, refused)
	m.do(
		m.client.Spawn(&contract.SpawnRequest{Parent: parent.ID, Attempt: parent.Attempt},
			func() []claimfake.Row { return []claimfake.Row{m.row(ids[0]), m.row(ids[1])} }),
	)
}

// countBoth counts all ends, and compares all jobs.
func (m *model) countBoth() {
	m.countEnds()
	for due := m.do(m.client.Due()).Due; len(due) > 0; due = m.do(m.client.Due()).Due {
		for _, id := range due {
			m.do(m.client.StepFlow(id, flow.Limits{Items: 1 + m.random.IntN(5), Bytes: 1000}))
		}
	}
	for _, id := range m.ids {
		require.Equal(m.t, m.status(id), string(m.table.Row(dispatcherd.JobID(id)).Status), "job %d", id)
	}
}

// The fake table releases and cancels the same jobs as Postgres.
func TestFakeTableCountsAsPostgres(t *testing.T) {
	m := &model{world: newWorld(t), random: rand.New(rand.NewPCG(1, 2)), table: claimfake.NewTable(nil), now: 1}
	m.client = claimfake.NewClient(m.table)
	m.do(m.client.Join())
	for range 60 {
		if m.random.IntN(2) == 0 {
			m.insertFlow()
		} else {
			m.insertBatch()
		}
		for range m.random.IntN(20) {
			m.end()
		}
		if m.random.IntN(2) == 0 {
			m.countBoth()
		}
	}
	m.countBoth()
	statuses := map[dispatcherd.Status]int{}
	for _, r := range m.table.Rows() {
		statuses[r.Status]++
	}
	require.Positive(t,
		slices.Min(
			[]int{statuses[dispatcherd.Waiting], statuses[dispatcherd.Done], statuses[dispatcherd.Failed], statuses[dispatcherd.Cancelled]},
		),
		"%v",
		statuses,
	)
	t.Log(statuses)
}
