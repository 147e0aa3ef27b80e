package permits

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

// BenchmarkJob is one job through Add, Admit, Started and Ended, in batches of 1,000 over 10,000 keys that never fill.
func BenchmarkJob(b *testing.B) {
	for _, keys := range []int{10_000, 1} {
		b.Run(fmt.Sprintf("keys=%d", keys), func(b *testing.B) {
			book := New(Config{Patience: 30_000_000, PerPriority: 64_000_000}, []Limit{{Key: "tenant:*", Capacity: 1_000_000}})
			book.SetTypes(map[string]Type{"a": {Most: 2_000}})
			names := make([]Class, keys)
			for i := range names {
				names[i] = Class{Keys: fmt.Sprintf("tenant:%d", i), Type: "a"}
			}
			b.ReportAllocs()
			now := int64(1_000_000_000)
			for id := int64(1); b.Loop(); {
				first := id
				now += 1000
				book.Advance(now)
				for ; id < first+1000; id++ {
					book.Add(names[id%int64(keys)], Job{now, id})
				}
				admitted := book.Admit(1000)
				for len(admitted) < 1000 { // only the first jobs of a class are known
					for _, r := range book.Refills(1) {
						book.Filled(r, jobsAfter(r.After, first+999, 64), r.After.ID+64 < first+999)
					}
					admitted = append(admitted, book.Admit(1000-len(admitted))...)
				}
				for _, a := range admitted {
					book.Started(a.ID, a.Fence, now)
				}
				for _, a := range admitted {
					book.Ended(a.ID, a.Fence)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/1000, "ns/job")
		})
	}
}

// jobsAfter returns the jobs of a class with consecutive ids, up to most.
func jobsAfter(j Job, last int64, most int) []Job {
	var jobs []Job
	for id := j.ID + 1; id <= last && len(jobs) < most; id++ {
		jobs = append(jobs, Job{j.RunAt, id})
	}
	return jobs
}

// BenchmarkHandOff is the end of the holder of a key with a million waiting jobs, and the admission of the next one.
func BenchmarkHandOff(b *testing.B) {
	book := New(Config{Patience: 30_000_000, PerPriority: 64_000_000}, nil)
	book.SetTypes(map[string]Type{"a": {Most: 10}})
	class := Class{Keys: "k", Type: "a"}
	book.Advance(1_000_000_000)
	book.Arrived(class, Job{1, 1}, true)
	b.ReportAllocs()
	for b.Loop() {
		admitted := book.Admit(1)
		for len(admitted) == 0 {
			for _, r := range book.Refills(1) {
				book.Filled(r, jobsAfter(r.After, 1<<60, 48), true)
			}
			admitted = book.Admit(1)
		}
		book.Started(admitted[0].ID, admitted[0].Fence, 1_000_000_000)
		book.Ended(admitted[0].ID, admitted[0].Fence)
	}
}

// BenchmarkKeys lists the first 100 of 250,000 keys.
func BenchmarkKeys(b *testing.B) {
	book := busyBook(250_000)
	for b.Loop() {
		book.Keys("", "", 100)
	}
}

// busyBook returns a book with one class for each of n keys.
func busyBook(n int) *Book {
	book := New(Config{Patience: 30_000_000, PerPriority: 64_000_000, MaxClasses: n}, nil)
	book.Advance(1_000_000_000)
	for i := range int64(n) {
		book.Add(Class{Keys: fmt.Sprintf("tenant:%d", i), Type: "a"}, Job{1_000_000_000 + i, i})
	}
	return book
}

// A class with its key takes about 600 bytes.
func TestMemoryOfAClassIsBounded(t *testing.T) {
	const n = 100_000
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	book := busyBook(n)
	runtime.GC()
	runtime.ReadMemStats(&after)
	each := (after.HeapAlloc - before.HeapAlloc) / n
	t.Logf("%d bytes for each class", each)
	require.LessOrEqual(t, each, uint64(620))
	require.Equal(t, n, book.Classes())
	require.False(t, book.Add(Class{Keys: "one more", Type: "a"}, Job{2_000_000_000, n + 1}))
	require.False(t, book.Arrived(Class{Keys: "one more", Type: "a"}, Job{2_000_000_000, n + 1}, true))
	require.True(t, book.Add(Class{Keys: "tenant:1", Type: "a"}, Job{1, n + 1}))
}

// BenchmarkExplain is the explanation of a job that waits at a key beside 100,000 permits of other keys.
func BenchmarkExplain(b *testing.B) {
	book := New(Config{Patience: 30_000_000, PerPriority: 64_000_000}, []Limit{{Key: "tenant:*", Capacity: 100}})
	book.Advance(1_000_000_000)
	for i := range int64(100_000) {
		book.Hold(Permit{Class: Class{Keys: fmt.Sprintf("tenant:%d", i/100), Type: "a"}, Job: Job{1, i + 1}, Fence: 1, Started: true})
	}
	name, j := Class{Keys: "tenant:7", Type: "a"}, Job{1_000_000_000, 200_000}
	book.Add(name, j)
	require.Empty(b, book.Admit(10))
	for b.Loop() {
		require.Len(b, book.Explain(name, j).Holders, mostHolders)
	}
}

// BenchmarkEditBeside100000Limits is an edit of one limit of 100,000, beside 10,000 keys with a waiting class each.
func BenchmarkEditBeside100000Limits(b *testing.B) {
	book := busyBook(10_000)
	list := make([]Limit, 100_000)
	for i := range list {
		list[i] = Limit{Key: fmt.Sprintf("customer:%d", i), Capacity: 1}
	}
	book.SetLimits(list)
	for i := int64(1); b.Loop(); i++ {
		book.Edit(map[string]*Limit{"customer:5": {Key: "customer:5", Capacity: i}})
	}
}
