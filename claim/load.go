package claim

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
)

// The bounds of one statement that reads payloads: rows, and bytes in the table (or one
// row). The table accepts payloads of 1 MB, and of 8 MB as text.
const (
	loadRows = 64
	loadSize = 4 << 20
)

// Loads is the number of calls of LoadPayloads that run at the same time.
const Loads = 2

// LoadPayloads reads the first payloads of a request. If Postgres cannot read a
// payload, the row is returned with the reason, and the others are read. With verdict
// OK at least one row is in Won or Lost.
func (s *Store) LoadPayloads(ctx context.Context, req contract.LoadRequest) contract.LoadResult {
	portion := req.Rows[:min(len(req.Rows), loadRows)]
	var res contract.LoadResult
	rest, err := Apart(portion, time.Now().Add(RepeatTime), func(rows []contract.Won) error {
		return s.load.do(ctx, OpLoad, func(c Session) (int, error) {
			n := len(res.Won)
			ids := column(rows, func(w *contract.Won) int64 { return int64(w.ID) })
			attempts := column(rows, func(w *contract.Won) int32 { return int32(w.Attempt) })
			found, _ := c.Query(c, "load", ids, attempts, s.me.Load(), int64(loadSize)) // readPayloads returns its error
			err := readPayloads(found, rows, &res)
			return len(res.Won) - n, err
		})
	}, func(w contract.Won, err error) {
		w.Unfit = "the payload cannot be read: " + reasonOf(err)
		res.Won = append(res.Won, w)
	})
	if err != nil && len(res.Won)+len(res.Lost) == 0 {
		return contract.LoadResult{Verdict: contract.Refused}
	}
	res.Rest = slices.Concat(res.Rest, rest, req.Rows[len(portion):])
	return res
}

// readPayloads reads rows of id and text, and adds each asked row to one list
// of the result. Rows beyond loadSize of text are left to the next portion.
func readPayloads(rows pgx.Rows, asked []contract.Won, res *contract.LoadResult) error {
	read := make(map[dispatcherd.JobID]contract.Won, len(asked))
	var (
		id   dispatcherd.JobID
		text pgtype.DriverBytes
		size int
	)
	_, err := pgx.ForEachRow(rows, []any{&id, &text}, func() error {
		var w contract.Won // neither payload nor reason: left to the next portion
		if text != nil {
			if w.Payload, w.Unfit = sendable(text); size > 0 && size+len(w.Payload) > loadSize {
				w.Payload = nil
			}
			w.Payload, size = slices.Clone(w.Payload), size+len(w.Payload)
		}
		read[id] = w
		return nil
	})
	if err != nil {
		return err
	}
	for _, w := range asked {
		r, found := read[w.ID]
		w.Payload, w.Unfit = r.Payload, r.Unfit
		switch {
		case !found:
			res.Lost = append(res.Lost, w.ID)
		case w.Payload == nil && w.Unfit == "":
			res.Rest = append(res.Rest, w)
		default:
			res.Won = append(res.Won, w)
		}
	}
	return nil
}
