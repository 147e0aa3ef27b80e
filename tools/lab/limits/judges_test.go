package main

import (
	"testing"
	"time"

	"github.com/dispatcherd/dispatcherd/tools/lab/internal/judge"
)

// at is an instant of a test, in milliseconds.
func at(ms int) time.Time { return time.UnixMilli(1_000_000 + int64(ms)) }

// ran is a job of a key with attempts, each from one time to another. It was inserted at 0 and is the id-th.
func ran(id int64, keys string, times ...int) job {
	needs := judge.Needs(keys)
	j := job{
		id:       id,
		group:    needs[0].Key,
		keys:     keys,
		needs:    needs,
		inserted: at(0),
		due:      at(0),
		fence:    id,
		attempts: len(times) / 2,
		ended:    true,
	}
	for i := 0; i < len(times); i += 2 {
		j.runs = append(j.runs, span{at(times[i]), at(times[i+1])})
	}
	return j
}

func with(j job, change func(*job)) job {
	change(&j)
	return j
}

func TestOverFindsEachExcess(t *testing.T) {
	for _, c := range []struct {
		name string
		want int
		jobs []job
	}{
		{"one after the other, in the same instant", 0, []job{ran(1, "serial:1", 0, 10), ran(2, "serial:1", 10, 20)}},
		{"two at once", 1, []job{ran(1, "serial:1", 0, 10), ran(2, "serial:1", 9, 20)}},
		{"other keys", 0, []job{ran(1, "serial:1", 0, 10), ran(2, "serial:2", 9, 20)}},
		{"the second of two keys", 1, []job{ran(1, "sem:1 serial:1", 0, 10), ran(2, "serial:1", 9, 20)}},
		{"a lost attempt counts until its release", 1, []job{ran(1, "serial:1", 0, 10, 30, 40), ran(2, "serial:1", 5, 20)}},
		{"a lost attempt does not count after its release", 0, []job{ran(1, "serial:1", 0, 10, 30, 40), ran(2, "serial:1", 10, 20)}},
		{
			"a job that has not ended", 1,
			[]job{with(ran(1, "serial:1", 0, 10), func(j *job) { j.runs[0].to = time.Time{} }), ran(2, "serial:1", 90, 100)},
		},
		{"weights that fit", 0, []job{ran(1, "sem:1*2", 0, 10), ran(2, "sem:1*2", 0, 10), ran(3, "sem:1*3", 10, 20)}},
		{"weights that do not fit", 1, []job{ran(1, "sem:1*2", 0, 10), ran(2, "sem:1*3", 0, 10)}},
		{"readers", 0, []job{ran(1, "rw:1", 0, 10), ran(2, "rw:1", 0, 10), ran(3, "rw:1*all", 10, 20)}},
		{"a writer beside a reader", 1, []job{ran(1, "rw:1", 0, 10), ran(2, "rw:1*all", 9, 20)}},
	} {
		if got := over(c.jobs); got != c.want {
			t.Errorf("%s: over is %d, want %d", c.name, got, c.want)
		}
	}
}

func TestOrderFindsEachJobThatWasPassed(t *testing.T) {
	for _, c := range []struct {
		name string
		want int
		jobs []job
	}{
		{"in order", 0, []job{ran(1, "serial:1", 0, 10), ran(2, "serial:1", 10, 20), ran(3, "serial:1", 20, 30)}},
		{"passed", 2, []job{ran(1, "serial:1", 11, 20), ran(2, "serial:1", 0, 10)}}, // and its fence
		{"passed by a job that is due later", 1, []job{
			with(ran(1, "serial:1", 0, 10), func(j *job) { j.due = at(5) }), with(ran(2, "serial:1", 10, 20), func(j *job) { j.due = at(4) }),
		}},
		{"never started", 1, []job{with(ran(1, "serial:1"), func(j *job) { j.fence = 0 }), ran(2, "serial:1", 0, 10)}},
		{
			"a job that was returned may be passed", 0,
			[]job{with(ran(1, "serial:1", 0, 10, 20, 30), func(j *job) { j.fence = 9 }), ran(2, "serial:1", 10, 20)},
		},
		{"another group", 0, []job{
			with(ran(1, "serial:1", 10, 20), func(j *job) { j.fence = 9 }), with(ran(2, "serial:1", 0, 10), func(j *job) { j.group = "other" }),
		}},
		{"a fence that does not grow", 1, []job{with(ran(1, "serial:1", 0, 10), func(j *job) { j.fence = 3 }), ran(2, "serial:1", 11, 20)}},
		{"room for several, admitted in order", 0, []job{ran(1, "sem:1", 1, 10), ran(2, "sem:1", 0, 10)}},
		{
			"room for several, admitted in the wrong order", 1,
			[]job{with(ran(1, "sem:1", 1, 10), func(j *job) { j.fence = 9 }), ran(2, "sem:1", 0, 10)},
		},
	} {
		if got := order(c.jobs); got != c.want {
			t.Errorf("%s: order is %d, want %d", c.name, got, c.want)
		}
	}
}

// others are jobs of other keys that start every 100 ms.
func others(from, to int) (list []job) {
	for ms := from; ms < to; ms += 100 {
		list = append(list, ran(int64(1000+ms), "sem:9", ms, ms+1))
	}
	return list
}

func TestLeakedFindsIdleKeysAndJobsThatDoNotEnd(t *testing.T) {
	idle := []job{ran(1, "serial:1", 0, 10), ran(2, "serial:1", 6000, 6010)}
	for _, c := range []struct {
		name string
		want int
		jobs []job
	}{
		{"none", 0, append(others(0, 10_000), ran(1, "serial:1", 0, 10), ran(2, "serial:1", 4000, 4010))},
		{"a job that never ends", 1, []job{with(ran(1, "serial:1"), func(j *job) { j.ended = false })}},
		{"an idle key", 1, append(others(0, 10_000), idle...)},
		{"an idle key without a waiting job", 0, append(others(0, 10_000), idle[0], with(idle[1], func(j *job) { j.inserted = at(5000) }))},
		{"an idle key whose job is not due", 0, append(others(0, 10_000), idle[0], with(idle[1], func(j *job) { j.due = at(5000) }))},
		{
			"a key with a lost job until its release", 0,
			append(others(0, 10_000), ran(1, "serial:1", 0, 5000, 7000, 7001), ran(2, "serial:1", 6000, 6010)),
		},
		{
			"an idle key with an attempt that no worker started", 0,
			append(others(0, 10_000), idle[0], with(idle[1], func(j *job) { j.attempts++ })),
		},
		{
			"an idle key with such an attempt for too long", 1,
			append(others(0, 40_000), idle[0], with(ran(2, "serial:1", 36_000, 36_010), func(j *job) { j.attempts++ })),
		},
		{
			"an idle key for which two jobs wait", 1,
			append(others(0, 10_000), with(ran(3, "serial:1", 6010, 6020), func(j *job) { j.inserted = at(5000) }), idle[1], idle[0]),
		},
		{"an idle key whose job waits for another one", 0, append(others(0, 10_000), idle[0], ran(2, "serial:1 other:1", 6000, 6010))},
		{
			"an idle key that is kept for a job that has waited for its other key for long", 0,
			append(others(0, 50_000), ran(1, "serial:1", 33_000, 34_000), ran(2, "serial:1 other:1", 46_000, 46_010),
				with(ran(3, "serial:1", 46_020, 46_030), func(j *job) { j.inserted = at(31_000) })),
		},
		{
			"an idle key before it is kept", 1,
			append(others(0, 50_000), ran(1, "serial:1", 10_000, 11_000), ran(2, "serial:1 other:1", 46_000, 46_010),
				with(ran(3, "serial:1", 46_020, 46_030), func(j *job) { j.inserted = at(11_000) })),
		},
		{"a time in which nothing starts", 0, append(append(others(0, 1000), others(5500, 7000)...), idle...)},
		{"a time in which nothing starts for longer than a recovery", 1, []job{ran(1, "serial:1", 0, 10), ran(2, "serial:1", 21_000, 21_010)}},
	} {
		if got := leaked(c.jobs); got != c.want {
			t.Errorf("%s: leaked is %d, want %d", c.name, got, c.want)
		}
	}
}

func TestDensestFindsTheWindowWithTheMostStarts(t *testing.T) {
	var even []time.Time
	for i := range 50 {
		even = append(even, at(100*i))
	}
	if n := densest(even); n != 10 {
		t.Errorf("ten starts per second are %d", n)
	}
	if r := mean(even); r < 9.99 || r > 10.01 {
		t.Errorf("ten starts per second have the rate %v", r)
	}
	if n := densest(append(even, at(1950))); n != 11 {
		t.Errorf("one more start makes %d", n)
	}
	if n := densest([]time.Time{at(0), at(999)}); n != 2 {
		t.Errorf("two starts within a window are %d", n)
	}
	if n := densest([]time.Time{at(0), at(1000)}); n != 1 {
		t.Errorf("the end belongs to the next window, but there are %d", n)
	}
}
