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

// next sends the first request whose user leaves a statement to others.
func (n *naiveSpawns) next(limit int) *contract.SpawnRequest {
	for i, r := range n.waiting {
		mine := 0
		for _, sent := range n.sent {
			if sent.User == r.User {
				mine++
			}
		}
		if len(n.sent) < limit && (mine == 0 || mine <= limit-2) {
			n.waiting, n.sent = slices.Delete(n.waiting, i, i+1), append(n.sent, r)
			return r
		}
	}
	return nil
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
				r.User = []string{"a", "a", "b"}[r.Session-1]
				q.add(r)
				want.waiting = append(want.waiting, r)
			},
			"next": func(t *rapid.T) {
				limit := rapid.IntRange(0, 4).Draw(t, "limit")
				require.Same(t, want.next(limit), q.next(limit))
			},
			"remove": func(t *rapid.T) {
				if len(want.sent) == 0 {
					return
				}
				i := rapid.IntRange(0, len(want.sent)-1).Draw(t, "index")
				require.True(t, q.remove(want.sent[i]))
				want.sent = slices.Delete(want.sent, i, i+1)
			},
			"remove a request that is not in flight": func(*rapid.T) {
				require.False(t, q.remove(&contract.SpawnRequest{}))
				if len(want.waiting) > 0 {
					require.False(t, q.remove(want.waiting[0]))
				}
			},
			"": func(t *rapid.T) {
				require.Len(t, q.open, len(want.waiting)+len(want.sent))
				for id := range dispatcherd.SessionID(4) {
					require.Equal(t, want.of(id), q.of(id))
				}
			},
		})
	})
}
