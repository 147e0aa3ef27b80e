package claim_test

import (
	"testing"
	"time"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/claim"
	"github.com/dispatcherd/dispatcherd/claim/claimfake"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/pgtest"
	"github.com/stretchr/testify/require"
)

// Fingerprints of the sessions in which jobs run and of the sessions that offer
// them.
const (
	oldSession contract.Fingerprint = -77
	newSession contract.Fingerprint = 1 << 60
)

// handedOut claims a job for the session oldSession.
func handedOut(t *testing.T, s store, id dispatcherd.JobID) contract.Won {
	t.Helper()
	req := claimOf(id)
	req.Sessions = []contract.Fingerprint{oldSession}
	res := s.Claim(t.Context(), req)
	require.Equal(t, contract.OK, res.Verdict)
	require.Len(t, res.Won, 1)
	return res.Won[0]
}

func adoptionOf(jobs ...contract.ResumeOffer) contract.AdoptRequest {
	return contract.AdoptRequest{Token: claimOf().Token, Jobs: jobs}
}

func adopted(t *testing.T, s store, req contract.AdoptRequest) []contract.Adopted {
	t.Helper()
	res := s.Adopt(t.Context(), req)
	require.Equal(t, contract.OK, res.Verdict)
	return res.Jobs
}

// The worker decides where its job continues, even if the former owner is alive.
// Later statements of the former owner change nothing.
func TestAdoptedJobKeepsItsAttemptAndItsFormerOwnerIsStale(t *testing.T) {
	t.Parallel()
	contractSuite(t, func(t *testing.T, w world) {
		owner, heir := joined(t, w), joined(t, w)
		id := w.insert(t, claimfake.Row{Type: "pdf", Priority: 3, MaxAttempts: 4, Timeout: time.Minute}, 0)
		won := handedOut(t, owner, id)
		jobs := adopted(t, heir, adoptionOf(contract.ResumeOffer{ID: id, Attempt: won.Attempt, From: oldSession, To: newSession}))
		require.Len(t, jobs, 1)
		a := jobs[0]
		require.GreaterOrEqual(t, a.Ran, time.Duration(0))
		a.Ran = 0
		require.Equal(t, contract.Adopted{
			Won:   contract.Won{ID: id, Type: "pdf", Priority: 3, Attempt: 1, MaxAttempts: 4, Timeout: time.Minute},
			RunAt: w.get(t, id).RunAt,
		}, a)
		done := contract.Finish{ID: id, Attempt: 1, Outcome: contract.Succeeded, Result: []byte("1")}
		require.Equal(t, []dispatcherd.JobID{id}, finish(t, owner, done))
		require.Equal(t, []dispatcherd.JobID{id}, finish(t, owner, contract.Finish{ID: id, Attempt: 1, Outcome: contract.Crashed}))
		require.Empty(t, finish(t, heir, done))
		require.Equal(t, dispatcherd.Done, w.get(t, id).Status)
	})
}

func TestAdoptionNeedsTheSessionThatTheJobWasSentTo(t *testing.T) {
	t.Parallel()
	contractSuite(t, func(t *testing.T, w world) {
		owner, heir := joined(t, w), joined(t, w)
		mine, alien := w.insert(t, claimfake.Row{Type: "pdf"}, 0), w.insert(t, claimfake.Row{Type: "pdf"}, 0)
		pending, over := w.insert(t, claimfake.Row{Type: "pdf"}, 0), w.insert(t, claimfake.Row{Type: "pdf"}, 0)
		req := claimOf(mine, alien, over)
		req.Sessions = []contract.Fingerprint{oldSession, 5, oldSession}
		require.Len(t, owner.Claim(t.Context(), req).Won, 3)
		finish(t, owner, contract.Finish{ID: over, Attempt: 1, Outcome: contract.Crashed})
		offerOf := func(id dispatcherd.JobID, attempt dispatcherd.Attempt) contract.ResumeOffer {
			return contract.ResumeOffer{ID: id, Attempt: attempt, From: oldSession, To: newSession}
		}
		require.Empty(t, adopted(t, heir, adoptionOf(offerOf(mine, 2))), "another attempt")
		jobs := adopted(t, heir, adoptionOf(offerOf(mine, 1), offerOf(alien, 1), offerOf(pending, 1), offerOf(over, 1), offerOf(1<<40, 1)))
		require.Len(t, jobs, 1)
		require.Equal(t, mine, jobs[0].ID)
		require.Empty(t, adopted(t, heir, adoptionOf(offerOf(mine, 1))), "the job now belongs to another session")
		third := joined(t, w)
		next := contract.ResumeOffer{ID: mine, Attempt: 1, From: newSession, To: 3}
		require.Len(t, adopted(t, third, adoptionOf(next)), 1, "that session can offer the job")
	})
}

// An adoption may be repeated because its first answer was lost. The repetition
// returns the same jobs.
func TestRepeatedAdoptionReturnsTheSameJobs(t *testing.T) {
	t.Parallel()
	contractSuite(t, func(t *testing.T, w world) {
		owner, heir := joined(t, w), joined(t, w)
		id := w.insert(t, claimfake.Row{Type: "pdf"}, 0)
		handedOut(t, owner, id)
		req := adoptionOf(contract.ResumeOffer{ID: id, Attempt: 1, From: oldSession, To: newSession})
		require.Len(t, adopted(t, heir, req), 1)
		require.Len(t, adopted(t, heir, req), 1)
		require.Empty(t, finish(t, heir, contract.Finish{ID: id, Attempt: 1, Outcome: contract.Released}))
		require.Empty(t, adopted(t, heir, req), "the job ended in between")
	})
}

func TestDispatcherWithoutALeaseAdoptsNothing(t *testing.T) {
	t.Parallel()
	contractSuite(t, func(t *testing.T, w world) {
		owner, heir := joined(t, w), w.open(t)
		run, err := heir.Join(t.Context())
		require.NoError(t, err)
		id := w.insert(t, claimfake.Row{Type: "pdf"}, 0)
		handedOut(t, owner, id)
		w.lose(t, run)
		req := adoptionOf(contract.ResumeOffer{ID: id, Attempt: 1, From: oldSession, To: newSession})
		require.Equal(t, contract.Refused, heir.Adopt(t.Context(), req).Verdict)
		require.Empty(t, finish(t, owner, contract.Finish{ID: id, Attempt: 1, Outcome: contract.Succeeded}))
	})
}

// The jobs of a lost dispatcher are released, except those that were adopted.
func TestAdoptedJobsOfALostDispatcherAreNotReleased(t *testing.T) {
	t.Parallel()
	contractSuite(t, func(t *testing.T, w world) {
		owner, heir, run := joinedPair(t, w)
		kept, left := w.insert(t, claimfake.Row{Type: "pdf"}, 0), w.insert(t, claimfake.Row{Type: "pdf"}, 0)
		handedOut(t, owner, kept)
		handedOut(t, owner, left)
		require.Len(t, adopted(t, heir, adoptionOf(contract.ResumeOffer{ID: kept, Attempt: 1, From: oldSession, To: newSession})), 1)
		w.lose(t, run)
		_, err := heir.Heartbeat(t.Context(), contract.HeartbeatRequest{})
		require.NoError(t, err)
		require.Equal(t, 1, release(t, heir))
		require.Equal(t, dispatcherd.Running, w.get(t, kept).Status)
		require.Equal(t, dispatcherd.Pending, w.get(t, left).Status)
		require.EqualValues(t, 1, w.get(t, left).Crashes)
		_, err = heir.Sweep(t.Context())
		require.NoError(t, err)
		require.Empty(t, finish(t, heir, contract.Finish{ID: kept, Attempt: 1, Outcome: contract.Succeeded}))
	})
}

// After a hand-over the rows stay running until their workers resume them. Rows
// that are not adopted in time are released without counting a crash.
func TestJobsHandedOverAreReleasedAfterTheHoldWithoutACrash(t *testing.T) {
	t.Parallel()
	contractSuite(t, func(t *testing.T, w world) {
		owner, heir, run := joinedPair(t, w)
		kept, left := w.insert(t, claimfake.Row{Type: "pdf"}, 0), w.insert(t, claimfake.Row{Type: "pdf"}, 0)
		handedOut(t, owner, kept)
		handedOut(t, owner, left)
		require.NoError(t, owner.HandOver(t.Context(), time.Minute))
		_, err := heir.Heartbeat(t.Context(), contract.HeartbeatRequest{})
		require.NoError(t, err)
		require.Zero(t, release(t, heir))
		require.Len(t, adopted(t, heir, adoptionOf(contract.ResumeOffer{ID: kept, Attempt: 1, From: oldSession, To: newSession})), 1)
		w.lose(t, run)
		_, err = heir.Heartbeat(t.Context(), contract.HeartbeatRequest{})
		require.NoError(t, err)
		require.Equal(t, 1, release(t, heir))
		row := w.get(t, left)
		require.Equal(t, dispatcherd.Pending, row.Status)
		require.Zero(t, row.Crashes+row.Failures)
		require.Empty(t, row.Errors)
		require.Equal(t, dispatcherd.Running, w.get(t, kept).Status)
	})
}

// A heartbeat may be executed after the hand-over, because it was sent on
// another connection or the server was slow. It must not restore the old length
// of the lease. It must not publish slots either: they no longer exist, so the
// rows of their share would have no owner.
func TestHeartbeatAfterTheHandOverPublishesNothing(t *testing.T) {
	t.Parallel()
	contractSuite(t, func(t *testing.T, w world) {
		owner, heir, run := joinedPair(t, w)
		left := w.insert(t, claimfake.Row{Type: "pdf"}, 0)
		handedOut(t, owner, left)
		w.depart(t, run)
		late, err := owner.Heartbeat(t.Context(), contract.HeartbeatRequest{Capacity: map[string]int{"pdf": 8}})
		require.NoError(t, err)
		require.True(t, late.LeaseLost)
		res, err := heir.Heartbeat(t.Context(), contract.HeartbeatRequest{Capacity: map[string]int{"pdf": 1}})
		require.NoError(t, err)
		require.Empty(t, res.OtherCapacity)
		require.Empty(t, res.Shares)
		require.Equal(t, dispatcherd.Running, w.get(t, left).Status, "the row waits for its worker")
	})
}

// The statement skips a locked row and reports it as busy, so it cannot deadlock.
// The other rows are taken.
func TestAdoptionReportsLockedRowsAsBusy(t *testing.T) {
	t.Parallel()
	contractSuite(t, func(t *testing.T, w world) {
		owner, heir := joined(t, w), joined(t, w)
		free, locked := w.insert(t, claimfake.Row{Type: "pdf"}, 0), w.insert(t, claimfake.Row{Type: "pdf"}, 0)
		offerOf := func(id dispatcherd.JobID) contract.ResumeOffer {
			return contract.ResumeOffer{ID: id, Attempt: 1, From: oldSession, To: oldSession}
		}
		handedOut(t, owner, free)
		handedOut(t, owner, locked)
		unlock := w.lock(t, locked)
		res := heir.Adopt(t.Context(), adoptionOf(offerOf(free), offerOf(locked)))
		require.Equal(t, contract.OK, res.Verdict)
		require.Len(t, res.Jobs, 1)
		require.Equal(t, free, res.Jobs[0].ID)
		require.Equal(t, []dispatcherd.JobID{locked}, res.Busy)
		res = heir.Adopt(t.Context(), adoptionOf(offerOf(locked)))
		require.Equal(t, contract.AdoptResult{Busy: []dispatcherd.JobID{locked}}, res, "nothing but that")
		unlock()
		require.Len(t, adopted(t, heir, adoptionOf(offerOf(locked))), 1)
	})
}

// Resume offers of one execution reach two dispatchers. If the offer with the
// earlier generation arrives last, it adopts nothing.
func TestAdoptionWithAnEarlierGenerationTakesNothing(t *testing.T) {
	t.Parallel()
	contractSuite(t, func(t *testing.T, w world) {
		owner, heir, late := joined(t, w), joined(t, w), joined(t, w)
		id := w.insert(t, claimfake.Row{Type: "pdf"}, 0)
		handedOut(t, owner, id)
		nth := func(n int) contract.AdoptRequest {
			return adoptionOf(contract.ResumeOffer{ID: id, Attempt: 1, From: oldSession, To: oldSession.WithGeneration(n)})
		}
		require.Len(t, adopted(t, heir, nth(2)), 1)
		require.Empty(t, adopted(t, late, nth(1)), "an older one")
		require.Empty(t, adopted(t, late, nth(2)), "the same offer to two dispatchers: the first one has the job")
		require.Empty(t, adopted(t, late, nth(0)), "an offer without a generation")
		require.Len(t, adopted(t, late, nth(3)), 1, "a newer one")
		require.Empty(t, finish(t, late, contract.Finish{ID: id, Attempt: 1, Outcome: contract.Succeeded}))
	})
}

// A renewed resume offer is about a row that this dispatcher has already
// adopted. Metrics count the rows of the statement as adoptions, so the
// statement does not count this row.
func TestRenewedResumeOfferIsNotCountedAsAdoption(t *testing.T) {
	t.Parallel()
	dsn := pgtest.New(t)
	fill(t, connect(t, dsn), 2, 1, 1)
	owner, seen := open(t, claim.Config{DSN: dsn}), newReports()
	heir := open(t, claim.Config{DSN: dsn, Observer: seen})
	for _, s := range []*claim.Store{owner, heir} {
		_, err := s.Join(t.Context())
		require.NoError(t, err)
	}
	handedOut(t, owner, 1)
	handedOut(t, heir, 2)
	jobs := adopted(t, heir, adoptionOf(
		contract.ResumeOffer{ID: 1, Attempt: 1, From: oldSession, To: newSession},
		contract.ResumeOffer{ID: 2, Attempt: 1, From: oldSession, To: newSession, Renewal: true},
	))
	require.Len(t, jobs, 2)
	require.Equal(t, 1, seen.of(claim.OpAdopt).Rows)
}

// A trigger raises an error for one of a hundred rows. The others are adopted by the same
// call, and their record contains all offers.
func TestRowThatATriggerRefusesDoesNotStopOtherAdoptions(t *testing.T) {
	t.Parallel()
	dsn := pgtest.New(t)
	db := connect(t, dsn)
	fill(t, db, 100, 1, 1)
	seen := new(failures)
	owner, heir := open(t, claim.Config{DSN: dsn}), open(t, claim.Config{DSN: dsn, Observer: seen})
	for _, s := range []*claim.Store{owner, heir} {
		_, err := s.Join(t.Context())
		require.NoError(t, err)
	}
	var offers []contract.ResumeOffer
	for id := range dispatcherd.JobID(100) {
		handedOut(t, owner, id+1)
		offers = append(offers, contract.ResumeOffer{ID: id + 1, Attempt: 1, From: oldSession, To: newSession})
	}
	refuse(t, db, "UPDATE", "jobs_live", "P0001", 42)
	res := heir.Adopt(t.Context(), adoptionOf(offers...))
	require.Equal(t, contract.OK, res.Verdict)
	require.Len(t, res.Jobs, 99)
	require.Equal(t, []dispatcherd.JobID{42}, res.Busy)
	require.Equal(t, map[dispatcherd.JobID]int{42: 1}, seen.reported(claim.OpAdopt))
	require.Contains(t, heir.WhyAside(42), "refused by the test")
	require.Equal(t, 100, one[int](t, db, `SELECT cardinality(ids) FROM dispatcherd.claims WHERE cardinality(ids) > 1`))
	exec(t, db, `DELETE FROM public.refused`)
	require.Empty(t, heir.Adopt(t.Context(), adoptionOf(offers[41])).Jobs, "it is set aside")
	heir.EndPauses()
	require.Len(t, heir.Adopt(t.Context(), adoptionOf(offers[41])).Jobs, 1)
}

// Postgres refuses one row, and a later part of the same adoption fails for another reason.
// The rows that were taken stay with the dispatcher, and the others are asked for again.
func TestAdoptionThatFailsInPartKeepsTheRowsItTook(t *testing.T) {
	t.Parallel()
	dsn := pgtest.New(t)
	db := connect(t, dsn)
	fill(t, db, 4, 1, 1)
	owner, heir := open(t, claim.Config{DSN: dsn}), open(t, claim.Config{DSN: dsn})
	for _, s := range []*claim.Store{owner, heir} {
		_, err := s.Join(t.Context())
		require.NoError(t, err)
	}
	var offers []contract.ResumeOffer
	for id := range dispatcherd.JobID(4) {
		handedOut(t, owner, id+1)
		offers = append(offers, contract.ResumeOffer{ID: id + 1, Attempt: 1, From: oldSession, To: newSession})
	}
	exec(t, db, `CREATE FUNCTION public.refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		IF NEW.id = 1 THEN RAISE 'row 1'; END IF;
		IF NEW.id = 3 THEN RAISE 'disk full' USING ERRCODE = '53100'; END IF;
		RETURN NEW; END $$`)
	exec(t, db, `CREATE TRIGGER refuse BEFORE UPDATE ON dispatcherd.jobs_live FOR EACH ROW EXECUTE FUNCTION public.refuse()`)
	res := heir.Adopt(t.Context(), adoptionOf(offers...))
	require.Equal(t, contract.OK, res.Verdict)
	require.Len(t, res.Jobs, 1)
	require.Equal(t, dispatcherd.JobID(2), res.Jobs[0].ID)
	require.Equal(t, []dispatcherd.JobID{1, 3, 4}, res.Busy)
	exec(t, db, `DROP TRIGGER refuse ON dispatcherd.jobs_live`)
	heir.CompareAgain()
	beat, err := heir.Heartbeat(t.Context(), contract.HeartbeatRequest{})
	require.NoError(t, err)
	require.Empty(t, beat.Unheld)
	require.Len(t, adopted(t, heir, adoptionOf(offers[2:]...)), 2)
	require.Empty(t, finish(t, heir, contract.Finish{ID: 2, Attempt: 1, Outcome: contract.Succeeded}))
}
