package claim

import (
	"context"
	"errors"
	"fmt"

	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/jackc/pgx/v5"
)

// Resolve finds out what a claim with an unknown outcome took. It raises the dispatcher's
// epoch first, under a lock that waits until claims in flight have ended, so
// that the answer is final: a copy of the statement that arrives later takes
// nothing. Refused and Unknown both mean: ask again.
func (s *Store) Resolve(ctx context.Context, req contract.ClaimRequest) contract.ClaimResult {
	token := fold(req.Token)
	var won []contract.Won
	err := s.claim.do(ctx, OpResolve, func(ctx context.Context, conn *pgx.Conn) (int, error) {
		me := s.me.Load()
		if err := s.raiseEpoch(ctx, conn, me); err != nil {
			return 0, err
		}
		var err error
		won, err = readWon(execute(ctx, conn, "resolve", s.claim.encodeClaim(req.IDs, nil, token, me, 0)[:3]...), len(req.IDs))
		return len(won), err
	})
	if err != nil {
		return contract.ClaimResult{Verdict: verdictOf(err)}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.records.add(token, won)
	return contract.ClaimResult{Verdict: contract.OK, Won: won}
}

// raiseEpoch ends the validity of every claim sent so far. FOR UPDATE waits for
// the share lock of claims in flight; a plain UPDATE would not. Both statements are
// sent together and form one transaction.
func (s *Store) raiseEpoch(ctx context.Context, conn *pgx.Conn, me int32) error {
	var (
		batch pgx.Batch
		epoch int32
	)
	batch.Queue(`SELECT set_config('lock_timeout', current_setting('statement_timeout'), true)`)
	batch.Queue(`SELECT FROM dispatcherd.dispatchers WHERE id = $1 FOR UPDATE`, me)
	batch.Queue(`UPDATE dispatcherd.dispatchers SET epoch = epoch + 1 WHERE id = $1 AND incarnation IS NOT NULL RETURNING epoch`, me).
		QueryRow(func(row pgx.Row) error { return row.Scan(&epoch) })
	err := conn.SendBatch(ctx, &batch).Close()
	if errors.Is(err, pgx.ErrNoRows) {
		return nil // declared lost: no claim of it can succeed
	}
	if err != nil {
		return fmt.Errorf("raise the epoch: %w", err)
	}
	s.epoch.Store(epoch)
	return nil
}
