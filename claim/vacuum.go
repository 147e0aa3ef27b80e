package claim

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// vacuumSQL reads what tells whether a vacuum of the hot table can clean anything:
// the oldest snapshot that somebody holds, as far as everybody may see it, rows that
// are dead, rows that died so far, and vacuums that ended. Vacuums show a snapshot,
// too, that holds nothing back.
const vacuumSQL = `
SELECT coalesce((
		SELECT x::text FROM (
			SELECT backend_xmin FROM pg_stat_activity
			WHERE pid <> pg_backend_pid() AND backend_type <> 'autovacuum worker' AND (datname = current_database() OR datname IS NULL)
			UNION ALL SELECT xmin FROM pg_replication_slots
			UNION ALL SELECT transaction FROM pg_prepared_xacts WHERE database = current_database()
		) AS held (x) WHERE x IS NOT NULL ORDER BY age(x) DESC LIMIT 1), ''),
	t.n_dead_tup, t.n_tup_upd + t.n_tup_del, t.vacuum_count + t.autovacuum_count,
	coalesce('autovacuum_enabled=false' = ANY (c.reloptions), false)
FROM pg_stat_user_tables t JOIN pg_class c ON c.oid = t.relid WHERE t.relid = 'dispatcherd.jobs_live'::regclass`

// vainFrom is how many dead rows a vacuum may read in vain: it takes a fraction of
// a second for them.
const vainFrom = 1_000_000

// cleaning is a reading of vacuumSQL.
type cleaning struct {
	horizon string // transaction id of the oldest snapshot; empty: nobody holds one
	dead    int64
	died    int64 // ever
	vacuums int64 // that ended, ever
	rests   bool
}

// vain reports whether a vacuum that ended since was has left all that has died
// since then where it is, because of the same snapshot. What dies next nobody can
// clean either before that is gone, while each vacuum reads the whole table again.
func (c *cleaning) vain(was *cleaning, from int64) bool {
	return c.horizon != "" && c.horizon == was.horizon && c.vacuums > was.vacuums &&
		c.dead >= from && 10*(c.dead-was.dead) >= 9*(c.died-was.died)
}

// PaceVacuum lets autovacuum of the hot table rest while it could clean nothing,
// and work again once it can. Call it now and then: a vacuum is known to be in vain
// when one has ended in vain between two calls, and the end of a rest waits for the
// next call. It returns whether autovacuum rests, and whether this call has changed
// that. A store begins by ending a rest, which others may have left behind.
func (s *Store) PaceVacuum(ctx context.Context) (rests, changed bool, err error) {
	err = s.sweep.do(ctx, OpVacuum, func(ctx context.Context, conn *pgx.Conn) (int, error) {
		var now cleaning
		if err := conn.QueryRow(ctx, vacuumSQL).Scan(&now.horizon, &now.dead, &now.died, &now.vacuums, &now.rests); err != nil {
			return 0, err
		}
		stands := now.horizon != "" && now.horizon == s.cleaning.horizon
		rests = stands && (now.rests || now.vain(&s.cleaning, s.vainFrom))
		if !stands || !rests && now.vacuums > s.cleaning.vacuums {
			s.cleaning = now // a vacuum cleaned what there was before the snapshot; the next one is to be judged
		}
		if rests == now.rests {
			return 0, nil
		}
		want := rests
		err := conn.QueryRow(ctx, `SELECT dispatcherd.rest_vacuum($1)`, rests).Scan(&rests)
		changed = err == nil && rests == want // an operator's word goes first
		return 0, err
	})
	return rests, changed, err
}
