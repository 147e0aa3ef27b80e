package operation

import (
	"context"
	"fmt"

	"github.com/dispatcherd/dispatcherd/claim"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/httpapi/rest"
)

// ErrNoDispatcher says that no dispatcher that lives has a name or id.
var ErrNoDispatcher = rest.NotFound.Refuses("no such dispatcher lives: see 'dispatcherd dispatcher list'")

// sendAwaySQL drains the dispatchers with name or id $1, or ends that. A restart ends it, too, because each run has a row of its own.
const sendAwaySQL = `
UPDATE dispatcherd.dispatchers d SET away_by = CASE WHEN $2::boolean THEN coalesce(nullif($3::text, ''), session_user) END
WHERE (d.name = $1::text OR d.id::text = $1) AND ` + claim.Alive + ` AND ($2 OR d.away_by IS NOT NULL) RETURNING d.name`

// SendAway drains a dispatcher, or ends that: it accepts no new workers, and sends those away that know other dispatchers.
func (c Controls) SendAway(ctx context.Context, name string, on bool) (version int64, err error) {
	none := fmt.Errorf("dispatcher %q is not drained: %w", name, ErrNoControl)
	if on {
		none = fmt.Errorf("%q: %w", name, ErrNoDispatcher)
	}
	_, version, err = change[named](ctx, c, none, sendAwaySQL, name, on, c.By)
	return version, err
}

// DispatcherName names a dispatcher.
type DispatcherName struct {
	Dispatcher string `param:"dispatcher" json:"dispatcher"` // Name or id of the dispatcher.
}

// SentAway answers the drain of a dispatcher.
type SentAway struct {
	contract.Confirmation
	rest.Warned
}

func (a API) awayCalls() []rest.Route {
	const dispatcher = "/v1/dispatchers/{dispatcher}"
	call := func(on bool) func(*rest.Request, *DispatcherName) (SentAway, error) {
		return func(r *rest.Request, n *DispatcherName) (s SentAway, err error) {
			s.Confirmation, err = a.change(r, r.PermitAll(), func(c Controls) (int64, error) { return c.SendAway(r.Context(), n.Dispatcher, on) })
			if err != nil || !on {
				return s, err
			}
			others, err := claim.Column[int32](r.Context(), a.DB,
				`SELECT id FROM dispatcherd.dispatchers d WHERE `+claim.Alive+` AND away_by IS NULL LIMIT 1`)
			if err == nil && len(others) == 0 {
				s.Warnings = []string{"no other dispatcher accepts workers, so those that this one sends away are refused everywhere: " +
					"start another one, or 'dispatcherd dispatcher resume' one"}
			}
			return s, err
		}
	}
	return []rest.Route{
		rest.On("drain-dispatcher", "POST "+dispatcher+"/drain",
			"Drain a dispatcher: it accepts no new workers, and those that know other dispatchers go there with their jobs", call(true)),
		rest.On("resume-dispatcher", "POST "+dispatcher+"/resume", "Let a drained dispatcher accept workers again", call(false)),
	}
}
