package stage

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/dispatcherd/dispatcherd/tools/lab/internal/history"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/rig"
)

// hostileUser is the uid of hostile programs: that of nobody.
const hostileUser = 65534

// StartHostile starts an attack of the hostile program on a daemon, and waits until it has begun. The program runs as another user.
func (s *Stage) StartHostile(attack string, d *Daemon) (*rig.Process, error) {
	p, err := rig.RunAs(hostileUser, attack, s.Hostile, "-attack", attack, "-api", d.API, "-worker", d.Socket)
	if err != nil {
		return nil, err
	}
	if _, err := p.Expect("begun"); err != nil {
		return nil, errors.Join(err, p.Stop())
	}
	return p, nil
}

// hostileRows are the tables with rows of a hostile user, and which rows these are. Its batches and flows have no callback, or a hostile
// one.
var hostileRows = []struct{ table, rows string }{
	{"batches", `NOT EXISTS (SELECT FROM dispatcherd.jobs j WHERE j.id = r.id AND j.type <> '` + history.Hostile + `')`},
	{"nodes", `NOT EXISTS (SELECT FROM dispatcherd.batches b WHERE b.id = r.flow)`},
	{"edges", `NOT EXISTS (SELECT FROM dispatcherd.batches b WHERE b.id = r.flow)`},
	{"bad_members", `NOT EXISTS (SELECT FROM dispatcherd.batches b WHERE b.id = r.batch)`},
	{"ends", `NOT EXISTS (SELECT FROM dispatcherd.batches b WHERE b.id = r.target)`},
	{"jobs_waiting", `r.type = '` + history.Hostile + `'`},
	{"jobs_live", `r.type = '` + history.Hostile + `'`},
}

// removeTime bounds RemoveHostile.
const removeTime = time.Minute

// RemoveHostile removes the jobs, batches and flows of a hostile user. It does not wait for rows that dispatchers have locked, so it causes
// no deadlock, but looks for them again.
func (s *Stage) RemoveHostile(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, s.URL())
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	for begun := time.Now(); ; _ = rig.Pause(ctx, 20*time.Millisecond) {
		left := false
		for _, t := range hostileRows {
			var some bool
			if _, err := conn.Exec(ctx, fmt.Sprintf(`DELETE FROM dispatcherd.%[1]s WHERE ctid = ANY (ARRAY (
				SELECT ctid FROM dispatcherd.%[1]s r WHERE %[2]s FOR UPDATE SKIP LOCKED))`, t.table, t.rows)); err != nil {
				return fmt.Errorf("removing hostile rows of %s: %w", t.table, err)
			}
			err := conn.QueryRow(ctx, fmt.Sprintf(`SELECT EXISTS (SELECT FROM dispatcherd.%s r WHERE %s)`, t.table, t.rows)).Scan(&some)
			if err != nil {
				return err
			}
			left = left || some
		}
		if !left {
			_, err := conn.Exec(ctx, `DELETE FROM dispatcherd.jobs WHERE type = $1`, history.Hostile)
			return err
		}
		if time.Since(begun) > removeTime {
			return errors.New("rows of a hostile user are locked all the time")
		}
	}
}
