package claim

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dispatcherd/dispatcherd/internal/contract"
)

// Durations is the table of learned durations of jobs, as one dispatcher uses it. The rows of a dispatcher have its name, so that its
// successor finds them.
type Durations struct {
	DB   *pgxpool.Pool
	Name string // of this dispatcher
}

// durationRows bounds the rows that are read, and shareTime the time of an exchange. durationsAge is how long the rows of a
// dispatcher count that learns nothing more.
const (
	durationRows = 36_864 // 2,048 types with nine classes, which this dispatcher and others have learned
	durationsAge = "7 days"
	shareTime    = 5 * time.Second
)

const (
	saveDurationsSQL = `INSERT INTO dispatcherd.durations AS d (dispatcher, type, class, n, s)
		SELECT $1, "Type", "Class" - 1, "N", "S" FROM jsonb_to_recordset($2) AS r ("Type" text, "Class" smallint, "N" bigint, "S" bigint)
		ON CONFLICT (dispatcher, type, class) DO UPDATE SET n = excluded.n, s = excluded.s, learned_at = now()`
	readDurationsSQL = `SELECT type, class + 1 AS class, dispatcher = $1 AS own, sum(n)::bigint AS n, sum(s)::bigint AS s
		FROM dispatcherd.durations
		WHERE learned_at > now() - interval '` + durationsAge + `' AND class BETWEEN -1 AND 7 AND n BETWEEN 0 AND 65536
			AND s BETWEEN 0 AND 65536 * 64
		GROUP BY 1, 2, 3 ORDER BY 1, 2, 3 LIMIT $2`
	expireDurationsSQL = `DELETE FROM dispatcherd.durations WHERE learned_at <= now() - interval '` + durationsAge + `'`
)

// HasNamesake reports whether a dispatcher that is alive, other than me, has the same name. They replace each other's rows.
func (d Durations) HasNamesake(ctx context.Context, me int32) (has bool, err error) {
	err = d.DB.QueryRow(ctx, `SELECT EXISTS (SELECT FROM dispatcherd.dispatchers
		WHERE name = $1 AND id <> $2 AND lost_at IS NULL AND NOT leaving)`, d.Name, me).
		Scan(&has)
	return has, err
}

// Share writes what this dispatcher has learned, and reads what all have, within shareTime. own are the rows under the name of this
// dispatcher, others the sums of all others.
func (d Durations) Share(ctx context.Context, learned []contract.Durations) (own, others []contract.Durations, err error) {
	ctx, cancel := context.WithTimeout(ctx, shareTime)
	defer cancel()
	if len(learned) > 0 {
		if _, err := d.DB.Exec(ctx, saveDurationsSQL, d.Name, learned); err != nil {
			return nil, nil, fmt.Errorf("write the learned durations: %w", err)
		}
		if _, err := d.DB.Exec(ctx, expireDurationsSQL); err != nil {
			return nil, nil, fmt.Errorf("delete old learned durations: %w", err)
		}
	}
	type row struct {
		contract.Durations
		Own bool
	}
	rows, err := List[row](ctx, d.DB, readDurationsSQL, d.Name, durationRows)
	if err != nil {
		return nil, nil, fmt.Errorf("read the learned durations: %w", err)
	}
	for _, r := range rows {
		if r.Own {
			own = append(own, r.Durations)
		} else {
			others = append(others, r.Durations)
		}
	}
	return own, others, nil
}
