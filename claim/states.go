package claim

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/dispatcherd/dispatcherd"
)

// State is what a caller that waits for the end of a job reads.
type State struct {
	ID      dispatcherd.JobID
	Status  dispatcherd.Status
	Attempt dispatcherd.Attempt
	Result  []byte // JSON; nil if there is none
	Failure string // the last error, "" if there was none
}

// rowsPerLook bounds one statement of States.
const rowsPerRead = 1000

// States reads the states of jobs, in no order, and hands each to told. Rows that
// are gone are left out. Its statement needs no other index than that of the id.
func (j Jobs) States(ctx context.Context, ids []dispatcherd.JobID, told func(State)) error {
	numbers := make([]int64, len(ids))
	for i, id := range ids {
		numbers[i] = int64(id)
	}
	for len(numbers) > 0 {
		n := min(len(numbers), rowsPerRead)
		if err := j.someStates(ctx, numbers[:n], told); err != nil {
			return err
		}
		numbers = numbers[n:]
	}
	return nil
}

func (j Jobs) someStates(ctx context.Context, ids []int64, told func(State)) error {
	rows, err := j.DB.Query(ctx, `SELECT id, status::text, attempt, result::text, errors -> -1 ->> 'error'
		FROM dispatcherd.jobs WHERE id = ANY ($1::bigint[])`, ids)
	if err != nil {
		return err
	}
	var s State
	var result, failure *string
	_, err = pgx.ForEachRow(rows, []any{&s.ID, &s.Status, &s.Attempt, &result, &failure}, func() error {
		s.Result, s.Failure = nil, ""
		if result != nil {
			s.Result = []byte(*result)
		}
		if failure != nil {
			s.Failure = *failure
		}
		told(s)
		return nil
	})
	return err
}
