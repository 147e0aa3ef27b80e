package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"github.com/dispatcherd/dispatcherd/tools/lab/internal/counter"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/figure"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/rig"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/stage"
)

// additions is how often a job of Count adds 1.
const additions = 10

// Count lets eight worker processes of two daemons make n additions to one file, protected by a serial key alone, while one of them
// is killed every second. It returns the difference of the number in the file from n.
func Count(ctx context.Context, env *rig.Rig, n int) (f figure.Figures, err error) {
	st, err := stage.Start(ctx, env, stage.Timed("count", 2, 4, 2, "--max-crashes", "30000"))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, st.Close(ctx)) }()
	file := filepath.Join(env.Dir, "count", "number")
	killing, stop := context.WithCancel(ctx)
	kills := 0
	var killer sync.WaitGroup
	killer.Go(func() {
		for ; rig.Pause(killing, time.Second) == nil; kills++ {
			st.Workers[kills%len(st.Workers)].Kill()
		}
	})
	err = st.Exec(ctx, fmt.Sprintf(`INSERT INTO dispatcherd.jobs (type, payload, keys, max_attempts)
		SELECT 'work', '{"do": "count", "file": "%s", "times": %d}', 'file', 1000 FROM generate_series(1, %d)`, file, additions, n/additions))
	if err == nil {
		_, err = st.AwaitDrained(ctx, time.Duration(n/additions)*20*time.Millisecond+time.Minute)
	}
	stop()
	killer.Wait()
	if err != nil {
		return nil, err
	}
	s, err := counter.Read(file)
	if err != nil {
		return nil, err
	}
	late, err := st.Number(ctx, `SELECT count(*) FROM dispatcherd.jobs WHERE errors::text LIKE '%larger fence%'`)
	return figure.Figures{
		figure.None(
			"count_difference",
			float64(s.Value-int64(n/additions*additions)),
		),
		figure.None("late_fences", float64(late)),
		figure.AtLeast("count_kills", float64(kills), float64(min(8, n/10_000))),
	}, err
}
