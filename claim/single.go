package claim

import "github.com/dispatcherd/dispatcherd/internal/contract"

// singleSQL is aloneSQL for one row, $1, and its session, $5: what an idle system
// claims. Somebody waits for its answer, so it leaves out what can wait: notes
// that may be forgotten are left to a later claim, see takeOver.
const singleSQL = `
WITH note AS (
	INSERT INTO dispatcherd.claims (dispatcher, token, ids, sessions)
	SELECT id, $2::bigint, ARRAY [$1::bigint], ARRAY [$5::bigint] FROM dispatcherd.dispatchers
	WHERE id = $3::int AND epoch = $4::int AND lost_at IS NULL AND beat_at + lease > now()
	FOR KEY SHARE
	RETURNING dispatcher
)` + takeRow + `
WHERE id = $1 AND status = 'pending' AND (run_at <= now()) IS TRUE AND EXISTS (SELECT FROM note)` + wonColumns

// notesLeft is how many notes a claim of a single row may leave to be forgotten. It
// is no setting: a note is some 60 bytes, fewer would cost every such claim the time
// that they are left for, and more would not save a noticeable part of it any more.
const notesLeft = 64

// takeOver hands out the tokens whose rows a claim of so many jobs is to remove.
// They cost the claim of a single row 40 µs of the 800 from the INSERT to the
// worker, so that one waits until there are some.
func (s *Store) takeOver(jobs int) []int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if jobs == 1 && len(s.marks.over) < notesLeft {
		return nil
	}
	over := s.marks.over
	s.marks.over = nil
	return over
}

// isSingle reports whether singleSQL does what the claim is to do.
func isSingle(req *contract.ClaimRequest, over []int64) bool {
	return len(req.IDs) == 1 && len(req.Sessions) == 1 && len(over) == 0
}

// singleParams are those of singleSQL, given those of the others.
func singleParams(req *contract.ClaimRequest, params [][]byte) [][]byte {
	return [][]byte{int8b(int64(req.IDs[0])), params[1], params[2], params[3], int8b(int64(req.Sessions[0]))}
}
