package trial

import (
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/history"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/stage"
)

// The types of the usual mix: many slots support two of them, few slots support the
// third.
var (
	types  = []string{"pdf", "excel", "rare"}
	offers = []stage.Offer{
		{Slots: 12, Types: []string{"pdf"}},
		{Slots: 12, Types: []string{"excel", "pdf"}},
		{Slots: 4, Types: []string{"excel", "pdf", "rare"}},
	}
)

// usual returns a mix of mostly short jobs. Some jobs are long enough to be
// interrupted, and some fail once or permanently.
func usual(n int64) history.Work {
	w := history.Work{N: n, Type: types[pick(n, 20)/9%3]}
	switch k := pick(n+7, 100); {
	case k < 4:
		w.Ms = 50 + pick(n, 200)
	case k < 30:
		w.Ms = 1 + pick(n, 10)
	}
	switch k := pick(n+13, 200); k {
	case 0:
		w.Fail = 1
	case 1:
		w.Do = history.Refuse
	}
	return w
}

// plain returns short jobs that all succeed.
func plain(n int64) history.Work {
	return history.Work{N: n, Type: types[pick(n, 20)/9%3], Ms: pick(n+7, 20)}
}

// lasting returns jobs of one length.
func lasting(ms int) func(int64) history.Work {
	return func(n int64) history.Work { return history.Work{N: n, Type: types[pick(n, 20)/9%3], Ms: ms} }
}

// pick maps numbers evenly to values, always in the same way.
func pick(n int64, of int) int {
	x := uint64(n) * 0x9e3779b97f4a7c15
	x ^= x >> 32
	x *= 0xd6e8feb86659fd93
	x ^= x >> 32
	return int(x % uint64(of))
}
