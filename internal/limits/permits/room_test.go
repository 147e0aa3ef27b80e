package permits

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// tenant adds n classes that wait at the key of a tenant, each with a key of its own.
func (w *world) tenant(name string, n int) (known int) {
	for range n {
		w.next++
		if w.Add(Class{Keys: fmt.Sprintf("order:%d %s", w.next, name), Type: "a"}, Job{w.now, w.next}) {
			known++
		}
		if w.next%100 == 0 {
			w.Admit(1000)
		}
	}
	w.Admit(1000)
	return known
}

// A thousand and one jobs of a tenant fill a book for a thousand. A job of another tenant is admitted nevertheless, whatever its priority,
// and the book keeps the first jobs of the first tenant.
func TestFullBookAdmitsJobsOfAnotherTenant(t *testing.T) {
	for _, priority := range []int16{10, 0, -10} {
		w := newWorld(t)
		w.config.MaxClasses = 1000
		require.Equal(t, 1001, w.tenant("tenant:1", 1002))
		other := Class{Keys: "tenant:2", Type: "b", Priority: priority}
		require.True(t, w.Add(other, Job{w.now, 5_000}))
		w.admits(5_000)
		require.LessOrEqual(t, w.Classes(), 1000)
		w.end(5_000)
		require.Equal(t, KeyBusy, w.Explain(Class{Keys: "order:2 tenant:1", Type: "a"}, Job{w.now, 2}).Reason)
		last := Job{w.now, 1002}
		require.Equal(t, NotRead, w.Explain(Class{Keys: "order:1002 tenant:1", Type: "a"}, last).Reason)
		require.False(t, w.Add(Class{Keys: "order:1003 tenant:1", Type: "a"}, Job{w.now, 1003}), "others of the key are before it")
	}
}

// All queues are short. A class that ranks before the last one replaces it.
func TestFullBookForgetsTheLastRank(t *testing.T) {
	w := newWorld(t)
	w.config.MaxClasses = 3
	for id := range int64(3) {
		require.True(t, w.Add(Class{Keys: fmt.Sprint("k", id), Type: "a"}, Job{w.now - 10 + id, id + 1}))
	}
	require.False(t, w.Add(Class{Keys: "late", Type: "a"}, Job{w.now, 4}))
	require.False(t, w.Add(Class{Keys: "later", Type: "a"}, Job{w.now, 5}))
	require.True(t, w.Add(Class{Keys: "urgent", Type: "a", Priority: 1}, Job{w.now, 6}))
	w.admits(6, 1, 2)
}

// The queue of a key was cut. When the next round has read the classes that are left, they are admitted in their order.
func TestForgottenClassReturns(t *testing.T) {
	w := newWorld(t)
	w.config.MaxClasses = 4
	class := func(id int64) Class { return Class{Keys: fmt.Sprintf("own:%d k", id), Type: "a"} }
	w.add("k", "a")
	w.admits(1)
	for id := int64(2); id <= 8; id++ {
		w.Add(class(id), Job{w.now, id})
		w.admits()
	}
	require.True(t, w.Add(Class{Keys: "x", Type: "a"}, Job{w.now, 9}))
	w.admits(9)
	for id := int64(1); id < 8; id++ {
		w.end(id)
		w.admits(id + 1)
		w.HeadsBegin()
		for next := id + 2; next <= 8; next++ {
			w.Head(class(next), Job{w.now, next})
		}
		w.HeadsEnd()
		w.admits()
	}
}

// Whatever arrives and ends, after a read of all heads the book knows the due class with the first rank, so that it does not starve.
func TestFirstRankIsNotForgotten(t *testing.T) {
	for seed := range uint64(30) {
		rng := rand.New(rand.NewPCG(seed, 5))
		w := newWorld(t, Limit{Key: "p:*", Capacity: 2})
		w.config.MaxClasses = 8
		w.kept = 2
		table := map[Class]Job{}
		for range 200 {
			w.pass(1)
			for range 3 {
				w.next++
				name := Class{Keys: fmt.Sprintf("p:%d q:%d", rng.IntN(3), rng.IntN(40)), Type: "a", Priority: int16(rng.IntN(2))}
				if _, waits := table[name]; !waits {
					table[name] = Job{w.now, w.next}
					w.Add(name, table[name])
				}
			}
			for id, p := range w.permits { // order-free: each ends by itself
				if rng.IntN(2) == 0 {
					w.Ended(id, p.Fence)
				}
			}
			w.HeadsBegin()
			first, at := Class{}, position{}
			for name, j := range table { // order-free: finds a minimum
				w.Head(name, j)
				if p := name.position(j, w.config.PerPriority); first.Keys == "" || p.before(at) {
					first, at = name, p
				}
			}
			w.HeadsEnd()
			require.LessOrEqual(t, w.Classes(), 8)
			if first.Keys != "" {
				require.NotNil(t, w.classes[first])
			}
			for _, a := range w.Admit(100) {
				delete(table, a.Class)
			}
			for _, r := range w.Refills(100) {
				w.Filled(r, nil, false)
			}
		}
	}
}

// BenchmarkFullBook is the arrival of a job of another tenant in a book that is full of 250,000 classes of one tenant, and its
// admission. slowest_ms is the longest of them, which is one that cuts the queue.
func BenchmarkFullBook(b *testing.B) {
	book := New(Config{Patience: 30_000_000, PerPriority: 64_000_000}, nil)
	now := int64(1_000_000_000)
	book.Advance(now)
	for id := range int64(DefaultMaxClasses + 1) {
		book.Add(Class{Keys: fmt.Sprintf("order:%d tenant:1", id), Type: "a"}, Job{now, id + 1})
		if id%1000 == 0 {
			book.Admit(1000)
		}
	}
	book.Admit(1000)
	slowest := time.Duration(0)
	id := int64(1_000_000)
	for b.Loop() {
		id++
		began := time.Now()
		book.Add(Class{Keys: fmt.Sprint("order:", id, " tenant:1"), Type: "a", Priority: 1}, Job{now, id})
		book.Add(Class{Keys: "tenant:2", Type: "a"}, Job{now, -id})
		for _, a := range book.Admit(10) {
			book.Ended(a.ID, a.Fence)
		}
		slowest = max(slowest, time.Since(began))
	}
	b.ReportMetric(float64(slowest.Microseconds())/1000, "slowest_ms")
}
