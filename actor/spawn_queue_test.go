package actor

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
)

// naiveSpawns contains two lists, which are searched from the beginning.
type naiveSpawns struct{ waiting, sent []*contract.SpawnRequest }

func (n *naiveSpawns) next(limit int) *contract.SpawnRequest {
	if len(n.waiting) == 0 || len(n.sent) >= limit {
		return nil
	}
	r := n.waiting[0]
	n.waiting, n.sent = n.waiting[1:], append(n.sent, r)
	return r
}

func (n *naiveSpawns) of(id dispatcherd.SessionID) (count int) {
	for _, r := range slices.Concat(n.waiting, n.sent) {
		if r.Session == id {
			count++
		}
	}
	return count
}

func TestSpawnQueueAgreesWithTheNaiveReference(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var q spawnQueue
		var want naiveSpawns
		number := int64(0)
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				number++
				r := &contract.SpawnRequest{Session: dispatcherd.SessionID(rapid.IntRange(1, 3).Draw(t, "session")), Number: number}
				q.add(r)
				want.waiting = append(want.waiting, r)
			},
			"next": func(t *rapid.T) {
				limit := rapid.IntRange(0, 3).Draw(t, "limit")
				require.Same(t, want.next(limit), q.next(limit))
			},
			"remove": func(t *rapid.T) {
				if len(want.sent) == 0 {
					return
				}
				i := rapid.IntRange(0, len(want.sent)-1).Draw(t, "index")
				q.remove(want.sent[i])
				want.sent = slices.Delete(want.sent, i, i+1)
			},
			"remove a request that is not in flight": func(*rapid.T) {
				q.remove(&contract.SpawnRequest{})
				if len(want.waiting) > 0 {
					q.remove(want.waiting[0])
				}
			},
			"": func(t *rapid.T) {
				require.Equal(t, len(want.waiting)+len(want.sent), q.size())
				for id := range dispatcherd.SessionID(4) {
					require.Equal(t, want.of(id), q.of(id))
				}
			},
		})
	})
}
