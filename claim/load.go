package claim

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

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
		return s.load.do(ctx, OpLoad, func(ctx context.Context, conn *pgx.Conn) (int, error) {
			n := len(res.Won)
			err := readPayloads(execute(ctx, conn, "load", encodeLoad(rows, s.me.Load())...), rows, &res)
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

// encodeLoad returns the parameters of loadSQL.
func encodeLoad(rows []contract.Won, me int32) [][]byte {
	return [][]byte{
		int8s(rows, func(w *contract.Won) int64 { return int64(w.ID) }),
		int4s(rows, func(w *contract.Won) int32 { return int32(w.Attempt) }),
		int4(me), int8b(loadSize),
	}
}

// readPayloads reads rows of id and text, and adds each asked row to one list
// of the result. Rows beyond loadSize of text are left to the next portion.
func readPayloads(rows *pgconn.ResultReader, asked []contract.Won, res *contract.LoadResult) error {
	type text struct {
		value []byte
		unfit string
		rest  bool
	}
	read := make(map[dispatcherd.JobID]text, len(asked))
	size := 0
	var bad error
	for rows.NextRow() {
		v := rows.Values()
		if len(v) != 2 || len(v[0]) != 8 {
			bad = fmt.Errorf("postgres sent a payload of %d columns, must be 2", len(v))
			continue
		}
		t := text{rest: v[1] == nil}
		if !t.rest {
			var value []byte
			value, t.unfit = sendable(v[1])
			if t.rest = size > 0 && size+len(value) > loadSize; !t.rest {
				t.value, size = slices.Clone(value), size+len(value)
			}
		}
		read[dispatcherd.JobID(readInt8(v[0]))] = t
	}
	if _, err := rows.Close(); err != nil {
		return err
	}
	if bad != nil {
		return bad
	}
	for _, w := range asked {
		t, found := read[w.ID]
		switch {
		case !found:
			res.Lost = append(res.Lost, w.ID)
		case t.rest:
			res.Rest = append(res.Rest, w)
		default:
			w.Payload, w.Unfit = t.value, t.unfit
			res.Won = append(res.Won, w)
		}
	}
	return nil
}
