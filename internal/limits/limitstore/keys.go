package limitstore

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dispatcherd/dispatcherd/claim"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/httpapi/rest"
	"github.com/dispatcherd/dispatcherd/internal/limits/permits"
)

// Bounds of an explanation of keys.
const (
	maxClasses = 10_000 // read in one call
	maxPermits = 10_000 // read in one call
	maxHolders = 100    // listed
	ownClasses = 100    // with exactly the key, if there are more classes than maxClasses
)

// Keys explains keys by the table.
type Keys struct {
	DB claim.DB
}

// holder is a row with a fence.
type holder struct {
	contract.KeyHolder

	Keys string
}

// holdersSQL reads rows with fences: of all keys, or of $1; $2 how many. Returned rows are first.
const holdersSQL = `
SELECT j.id::bigint, j.type::text, j.fence, coalesce(j.dispatcher, j.admitted_to) AS dispatcher,
	coalesce((SELECT d.name FROM dispatcherd.dispatchers d WHERE d.id = coalesce(j.dispatcher, j.admitted_to)), '') AS dispatcher_name,
	CASE WHEN j.status = 'running' THEN j.started_at END AS started_at, j.keys
FROM dispatcherd.jobs_live j WHERE j.keys IS NOT NULL AND j.fence IS NOT NULL
	AND ($1::text[] IS NULL OR EXISTS (SELECT FROM unnest(string_to_array(j.keys, ' ')) word WHERE split_part(word, '*', 1) = ANY ($1)))
ORDER BY j.fence, j.id + 0 LIMIT $2`

// holders reads the rows with fences that need one of the keys; without keys, all of them.
func (k Keys) holders(ctx context.Context, keys []string) (list []holder, err error) {
	return claim.List[holder](ctx, k.DB, holdersSQL, keys, maxPermits)
}

// heads reads the first waiting row of each class after a class.
func (k Keys) heads(ctx context.Context, after permits.Class, most int) ([]Waiting, error) {
	return claim.Rows(ctx, k.DB, waitingRow, headsSQL, after.Keys, after.Type, after.Priority, most)
}

// limitsOfSQL reads the limits that apply to those of the keys $1 that have one: the exact one, or else that of the longest prefix.
const limitsOfSQL = `SELECT i.key AS applies_to, ` + columns + ` FROM unnest($1::text[]) AS i (key) CROSS JOIN LATERAL (
	SELECT * FROM dispatcherd.limits o
	WHERE o.key = ANY (ARRAY (SELECT left(i.key, n) || '*' FROM generate_series(0, length(i.key)) n) || i.key)
	ORDER BY o.key = i.key DESC, length(o.key) DESC LIMIT 1
) l`

// Limits returns the limits that apply to keys.
func (k Keys) Limits(ctx context.Context, keys []string) (map[string]contract.Limit, error) {
	type limit struct {
		AppliesTo string
		contract.Limit
	}
	list, err := claim.List[limit](ctx, k.DB, limitsOfSQL, keys)
	applies := make(map[string]contract.Limit, len(keys))
	for _, key := range keys {
		applies[key] = contract.NewLimit(key)
	}
	for _, l := range list {
		applies[l.AppliesTo] = l.Limit
	}
	return applies, err
}

// Controller returns the dispatcher that admits jobs with keys, or nil.
func (k Keys) Controller(ctx context.Context) (*contract.Controller, error) {
	list, err := claim.List[contract.Controller](ctx, k.DB, `SELECT d.id AS dispatcher, d.name FROM dispatcherd.controller c
		JOIN dispatcherd.dispatchers d ON d.id = c.dispatcher WHERE d.lost_at IS NULL`)
	if len(list) == 0 {
		return nil, err
	}
	return &list[0], err
}

// add adds a holder to a summary. A returned row waits.
func add(s *contract.KeySummary, h *holder, cost int64) {
	switch {
	case h.Fence < 0:
		return
	case cost == permits.All:
		s.Alone = true
	default:
		s.Held += cost
	}
	s.Holders++
}

// List returns a page of the keys that jobs hold or wait for and whose names begin with a prefix, in the order of their names, after a
// name. It reads at most 10,000 permits and 10,000 classes of waiting jobs.
func (k Keys) List(ctx context.Context, prefix, after string, limit int) (page contract.KeyPage, err error) {
	held, err := k.holders(ctx, nil)
	if err != nil {
		return page, err
	}
	waiting, err := k.heads(ctx, permits.Class{}, maxClasses)
	if err != nil {
		return page, err
	}
	page.Incomplete = len(held) == maxPermits || len(waiting) == maxClasses
	all := map[string]*contract.KeySummary{}
	of := func(key string) *contract.KeySummary {
		if all[key] == nil {
			all[key] = &contract.KeySummary{Key: key}
		}
		return all[key]
	}
	for i := range held {
		for _, n := range permits.NeedsOf(held[i].Keys) {
			add(of(n.Key), &held[i], n.Cost)
		}
	}
	for i := range waiting {
		for _, n := range permits.NeedsOf(waiting[i].Keys) {
			of(n.Key).Classes++
		}
	}
	var list []contract.KeySummary
	for name, s := range all {
		if name > after && strings.HasPrefix(name, prefix) {
			list = append(list, *s)
		}
	}
	slices.SortFunc(list, func(a, b contract.KeySummary) int { return cmp.Compare(a.Key, b.Key) })
	if page.Page, err = k.page(ctx, list[:min(len(list), limit+1)], limit); err == nil {
		page.Controller, err = k.Controller(ctx)
	}
	return page, err
}

// page returns a page of keys, with the limits that apply.
func (k Keys) page(ctx context.Context, list []contract.KeySummary, limit int) (page contract.Page[contract.KeySummary], err error) {
	names := make([]string, len(list))
	for i := range list {
		names[i] = list[i].Key
	}
	applies, err := k.Limits(ctx, names)
	for i, name := range names {
		list[i].Limit, list[i].Default = applies[name], applies[name].Version == 0
	}
	return rest.PageOf(list, limit, func(s *contract.KeySummary) any { return s.Key }), err
}

// CheckKey returns an error if a text is not a key.
func CheckKey(key string) error {
	if !permits.IsKey(key) {
		return fmt.Errorf(
			"%w: key %q: must have 1 to 128 characters without blanks, control characters and *, for example %q",
			ErrInvalid,
			key,
			"tenant:42",
		)
	}
	return nil
}

// Held returns what the table says about keys, without their waiting jobs: the bounded part of Show.
func (k Keys) Held(ctx context.Context, keys []string) ([]contract.KeyState, error) {
	held, err := k.holders(ctx, keys)
	if err != nil {
		return nil, err
	}
	applies, err := k.Limits(ctx, keys)
	if err != nil {
		return nil, err
	}
	states := make([]contract.KeyState, len(keys))
	for i, key := range keys {
		s := &states[i]
		s.Default = applies[key].Version == 0
		s.Key, s.Limit, s.Jobs, s.Incomplete = key, applies[key], []contract.KeyHolder{}, len(held) == maxPermits
		for j := range held {
			n := permits.NeedOf(held[j].Keys, key)
			if n == nil {
				continue
			}
			h := held[j].KeyHolder
			h.Cost = n.Cost
			add(&s.KeySummary, &held[j], h.Cost)
			switch {
			case h.Fence < 0:
				s.Waiting++
			case len(s.Jobs) < maxHolders:
				s.Jobs = append(s.Jobs, h)
			}
		}
	}
	return states, nil
}

// Show returns the state of a key by the table: the limit that applies, the jobs that have permits, and the waiting jobs, of
// which only the controller knows the order.
func (k Keys) Show(ctx context.Context, key string) (s contract.KeyState, err error) {
	if err := CheckKey(key); err != nil {
		return s, err
	}
	states, err := k.Held(ctx, []string{key})
	if err != nil {
		return s, err
	}
	s = states[0]
	classes, err := k.heads(ctx, permits.Class{}, maxClasses)
	if err == nil && len(classes) == maxClasses {
		s.Incomplete = true
		var own []Waiting
		own, err = k.heads(ctx, permits.Class{Keys: key, Priority: -1}, ownClasses)
		classes = slices.Concat(own, slices.DeleteFunc(classes, func(w Waiting) bool { return w.Keys == key }))
	}
	if err != nil {
		return s, err
	}
	classes = slices.DeleteFunc(classes, func(w Waiting) bool { return permits.NeedOf(w.Keys, key) == nil })
	if err := k.addWaiting(ctx, &s, classes); err != nil {
		return s, err
	}
	s.Controller, err = k.Controller(ctx)
	return s, err
}

// addWaiting adds the waiting jobs of classes.
func (k Keys) addWaiting(ctx context.Context, s *contract.KeyState, classes []Waiting) error {
	s.Classes = len(classes)
	texts := make([]string, len(classes))
	for i := range classes {
		texts[i] = classes[i].Keys
	}
	slices.Sort(texts)
	var waiting int
	err := k.DB.QueryRow(ctx, `SELECT clock_timestamp(), count(*)
		FROM (SELECT FROM dispatcherd.jobs_live j WHERE `+waitingJobs+` AND j.keys = ANY ($1::text[]) LIMIT $2) w`,
		slices.Compact(texts), contract.WaitingLimit).
		Scan(&s.ReadAt, &waiting)
	if err != nil {
		return err
	}
	s.Waiting = min(s.Waiting+waiting, contract.WaitingLimit)
	for i := range classes {
		at := time.UnixMicro(classes[i].RunAt)
		if !at.After(s.ReadAt) && (s.Oldest == nil || at.Before(*s.Oldest)) {
			s.Oldest = &at
		}
	}
	return nil
}
