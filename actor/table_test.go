package actor

import (
	"time"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/claim/claimfake"
	"github.com/dispatcherd/dispatcherd/internal/contract"
)

// table stands for Postgres. It executes each statement at once.
type table struct {
	*claimfake.Table

	now     int64               // database clock, microseconds
	clients []*claimfake.Client // of the dispatchers, by id - 1
}

func newTable() *table {
	return &table{Table: claimfake.NewTable(nil), now: 1_000_000_000_000}
}

// client returns the client of a dispatcher, whose lease never ends.
func (t *table) client(dispatcher int) *claimfake.Client {
	for len(t.clients) < dispatcher {
		c := claimfake.NewClient(t.Table)
		c.Lease = 100 * 365 * 24 * time.Hour
		t.do(c, c.Join())
		t.clients = append(t.clients, c)
	}
	return t.clients[dispatcher-1]
}

func (t *table) do(c *claimfake.Client, s *claimfake.Statement) *claimfake.Statement {
	s.Do(t.now)
	c.Answered(s, s.Verdict)
	return s
}

func (t *table) insert(r claimfake.Row) {
	if r.MaxAttempts < 0 {
		r.MaxAttempts = 0 // that of the type
	} else if r.MaxAttempts == 0 {
		r.MaxAttempts = 3
	}
	t.Insert(t.now, r)
}

func (t *table) fetch(req *contract.FetchRequest) contract.FetchResult {
	return t.client(1).Fetch(req).Do(t.now).Fetched
}

// claim executes a claim.
func (t *table) claim(dispatcher int, req *contract.ClaimRequest) contract.ClaimResult {
	c := t.client(dispatcher)
	return t.do(c, c.Claim(req)).Claimed
}

func (t *table) resolve(dispatcher int, req *contract.ClaimRequest) contract.ClaimResult {
	c := t.client(dispatcher)
	return t.do(c, c.Resolve(req)).Claimed
}

func (t *table) load(dispatcher int, req *contract.LoadRequest) contract.LoadResult {
	c := t.client(dispatcher)
	return t.do(c, c.LoadPayloads(req)).Loaded
}

func (t *table) adopt(dispatcher int, req *contract.AdoptRequest) contract.AdoptResult {
	c := t.client(dispatcher)
	return t.do(c, c.Adopt(req)).Adopted
}

func (t *table) finish(dispatcher int, req *contract.FinishRequest) contract.FinishResult {
	c := t.client(dispatcher)
	return t.do(c, c.Finish(req)).Finished
}

// steal makes another dispatcher claim a row for a session, after it was released if it ran.
func (t *table) steal(dispatcher int, r *claimfake.Row, session contract.Fingerprint) {
	if r.Status == dispatcherd.Running {
		t.release(r)
	}
	t.claim(dispatcher, &contract.ClaimRequest{
		Token: contract.Token{0: 1, 8: byte(r.ID), 9: byte(r.ID >> 8), 10: byte(r.Attempt)}, IDs: []dispatcherd.JobID{r.ID},
		Sessions: []contract.Fingerprint{session},
	})
}

// release makes a running row pending again.
func (t *table) release(r *claimfake.Row) {
	t.finish(int(r.Dispatcher), &contract.FinishRequest{Items: []contract.Finish{{ID: r.ID, Attempt: r.Attempt, Outcome: contract.Released}}})
}

// floorMS converts microseconds to whole milliseconds, rounding down.
func floorMS(us int64) int64 { return (us - (us%1000+1000)%1000) / 1000 }
