package claimfake

import (
	"slices"
	"time"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/claim"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/flow"
)

// contendedClaims is how many claims skip locked rows after one that lost rows.
const contendedClaims = 100

// Client is one dispatcher's view of a Table. It remembers the same values as a
// claim.Store. Each method returns a statement that has not begun and has a copy of the
// request.
type Client struct {
	// Lease is how long the dispatcher counts as alive after a heartbeat.
	Lease time.Duration
	// Identity is claim.Config.Identity.
	Identity claim.Identity

	table      *Table
	me         int32 // id of this run, 0 = not joined
	epoch      int32
	contention int // further claims that skip locked rows
	records    claim.Records
}

// NewClient returns a client that has not joined.
func NewClient(t *Table) *Client {
	return &Client{Lease: claim.DefaultLease, table: t, records: claim.NewRecords()}
}

// Dispatcher returns the id under which the client claims; 0 before Join.
func (c *Client) Dispatcher() int32 { return c.me }

func (c *Client) statement(first func(*Statement, int64) State) *Statement {
	return &Statement{table: c.table, next: first, me: c.me, epoch: c.epoch}
}

// Fetch returns the statement of claim.Store.Fetch.
func (c *Client) Fetch(r *contract.FetchRequest) *Statement {
	s := c.statement((*Statement).read)
	s.fetch = contract.FetchRequest{
		Lanes:      slices.Clone(r.Lanes),
		Classes:    slices.Clone(r.Classes),
		Backfill:   r.Backfill,
		SkipLocked: r.SkipLocked,
	}
	return s
}

// Claim returns the statement of claim.Store.Claim.
func (c *Client) Claim(r *contract.ClaimRequest) *Statement {
	s := c.statement((*Statement).beginClaim)
	s.ask(r)
	c.records.Ask(s.token)
	s.contended = c.contention > 0
	return s
}

func (s *Statement) ask(r *contract.ClaimRequest) {
	s.claim = &contract.ClaimRequest{IDs: slices.Clone(r.IDs), Sessions: slices.Clone(r.Sessions)}
	s.token = claim.Fold(r.Token)
}

// Resolve returns the statement of claim.Store.Resolve.
func (c *Client) Resolve(r *contract.ClaimRequest) *Statement {
	s := c.statement((*Statement).beginResolve)
	s.ask(r)
	s.resolves = true
	return s
}

// LoadPayloads returns the statement of claim.Store.LoadPayloads.
func (c *Client) LoadPayloads(r *contract.LoadRequest) *Statement {
	s := c.statement((*Statement).readPayloads)
	s.load = &contract.LoadRequest{Rows: slices.Clone(r.Rows)}
	return s
}

// Finish returns the statement of claim.Store.Finish.
func (c *Client) Finish(r *contract.FinishRequest) *Statement {
	s := c.statement((*Statement).beginFinish)
	s.finish = &contract.FinishRequest{Items: slices.Clone(r.Items), Again: r.Again}
	return s
}

// Adopt returns the statement of claim.Store.Adopt.
func (c *Client) Adopt(r *contract.AdoptRequest) *Statement {
	s := c.statement((*Statement).beginAdopt)
	s.adopt, s.token = &contract.AdoptRequest{Jobs: slices.Clone(r.Jobs)}, claim.Fold(r.Token)
	c.records.Ask(s.token)
	return s
}

// SetSubscribed returns the statement of claim.Store.SetSubscribed.
func (c *Client) SetSubscribed(subscribed bool) *Statement {
	s := c.statement((*Statement).setGate)
	s.subscribed = subscribed
	return s
}

// Join returns the statement of claim.Store.Join.
func (c *Client) Join() *Statement {
	s := c.statement((*Statement).join)
	s.begin = dispatcher{identity: c.Identity, lease: c.Lease.Microseconds()}
	return s
}

// Heartbeat returns the statement of claim.Store.Heartbeat.
func (c *Client) Heartbeat(r *contract.HeartbeatRequest) *Statement {
	s := c.statement((*Statement).beginHeartbeat)
	s.beat, s.forget, s.holds = r, c.records.Removable(), c.records.Holds
	return s
}

// Run returns a statement that runs f at one instant.
func (c *Client) Run(f func(t *Table, now int64) error) *Statement {
	return c.statement(func(s *Statement, now int64) State {
		s.Err = f(s.table, now)
		return s.done(contract.OK)
	})
}

// StepFlow returns the statements of flowstore.Store.Step.
func (c *Client) StepFlow(target dispatcherd.JobID, l flow.Limits) *Statement {
	s := c.statement((*Statement).beginStep)
	s.step = flowStep{target: target, limits: l}
	return s
}

// Due returns the statement of flowstore.Store.Due.
func (c *Client) Due() *Statement { return c.statement((*Statement).due) }

// Spawn returns the statement of claim.Store.Spawn. It calls children before its commit.
func (c *Client) Spawn(r *contract.SpawnRequest, children func() []Row) *Statement {
	s := c.statement((*Statement).beginSpawn)
	s.spawn = spawn{r.Parent, r.Attempt, children}
	return s
}

// Leave returns the statement of claim.Store.Leave.
func (c *Client) Leave() *Statement { return c.statement((*Statement).beginLeave) }

// HandOver returns the statement of claim.Store.HandOver.
func (c *Client) HandOver(hold time.Duration) *Statement {
	s := c.statement((*Statement).beginHandOver)
	s.hold = hold.Microseconds()
	return s
}

// Answered notes what the client learns of a statement: its results if v is contract.OK,
// and otherwise only that it was refused or that its outcome is unknown.
func (c *Client) Answered(s *Statement, v contract.Verdict) {
	if s.Claimed.OldEpoch && v == contract.Refused || s.resolves && v == contract.OK {
		c.epoch = s.epoch
	}
	if v != contract.OK {
		c.records.Keep(s.forget)
		if s.claim != nil && !s.resolves || s.adopt != nil {
			c.records.Fail(s.token, v)
		}
		return
	}
	switch {
	case s.claim != nil:
		c.records.Add(s.token, s.Claimed.Won, s.Claimed.Loading)
		if !s.resolves {
			c.trackContention(s)
		}
	case s.adopt != nil:
		c.records.AddAdopted(s.token, s.adopt.Jobs, s.Adopted.Jobs)
	case s.finish != nil:
		for i := range s.finish.Items {
			if id := s.finish.Items[i].ID; !s.postponed(id) {
				c.records.Remove(id)
			}
		}
	case s.Joined != 0:
		c.me, c.epoch = s.Joined, 0
	}
}

// trackContention follows claim.Store: a claim that lost more than a twentieth of its rows
// makes the next claims skip locked rows.
func (c *Client) trackContention(s *Statement) {
	asked, won := len(s.claim.IDs), s.Claimed.Rows()
	switch {
	case s.met || 20*(asked-won) > asked:
		c.contention = contendedClaims
	case s.contended && c.contention > 0:
		c.contention--
	}
}
