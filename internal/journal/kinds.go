package journal

import (
	"math/rand/v2"
	"reflect"

	"github.com/dispatcherd/dispatcherd/actor"
	"github.com/dispatcherd/dispatcherd/internal/freeze"
)

// events are the kinds of events, in the order of their numbers in a file. This
// is the one place where a new event is entered.
func events(c *freeze.Codec) []kind {
	return []kind{
		event[actor.Registered](c, "registered"),
		event[actor.Unregistered](c, "unregistered"),
		event[actor.Withdrew](c, "withdrew"),
		event[actor.Released](c, "released"),
		event[actor.Reported](c, "reported"),
		event[actor.Requested](c, "requested"),
		event[actor.Abandoned](c, "abandoned"),
		event[actor.Impatient](c, "impatient"),
		event[actor.Notified](c, "notified"),
		event[actor.Listening](c, "listening"),
		event[actor.CancelRequested](c, "cancel-requested"),
		event[actor.Fetched](c, "fetched"),
		event[actor.Claimed](c, "claimed"),
		event[actor.Finished](c, "finished"),
		event[actor.BellSet](c, "bell-set"),
		event[actor.Disowned](c, "disowned"),
		event[actor.Owned](c, "owned"),
		event[actor.Elsewhere](c, "elsewhere"),
		event[actor.Reweighed](c, "reweighed"),
		event[actor.Drained](c, "drained"),
		event[actor.Interrupted](c, "interrupted"),
		event[actor.Tick](c, "tick"),
		event[actor.Together](c, "together"),
		event[actor.Adopted](c, "adopted"),
		event[actor.HandedOver](c, "handed-over"),
		event[actor.HandedOver](c, "handed-over"),
		event[actor.Announced](c, "announced"),
	}
}

// language is what files are written in.
type language struct {
	codec   *freeze.Codec
	kinds   []kind
	state   freeze.Form[actor.Core]
	effects freeze.Form[[]actor.Effect]
	schema  uint64 // what this program can replay
}

var files = newLanguage()

// newLanguage says what of a core, its events and effects may be in a file. A
// string that is in none of the lists is left out, and a test asks for a decision.
func newLanguage() language {
	c := freeze.New(freeze.Options{
		Strings: []string{
			"actor.Config.Timeouts", "actor.Core.elsewhere", "actor.Core.shares", "actor.Effect.Type", "actor.Elsewhere.Capacity", "actor.Elsewhere.Shares", "actor.Registered.Worker",
			"actor.Requested.Type", "actor.session.worker", "contract.Adopted.Type", "contract.RowNotification.Type", "contract.ClaimRequest.Types", "contract.LaneQuery.Type",
			"dispatcherd.Slot.Types", "slotindex.Index.byName", "slotindex.Index.byTypes", "slotindex.typeEntry.name",
		},
		Silent: []string{"actor.Effect.Reason", "actor.Result.Error", "contract.Finish.Error"},
		Drop: []string{ // memory that is kept for use, and means nothing
			"actor.Core.found", "actor.Core.fx", "actor.Core.heads", "actor.Core.spare", "actor.claiming.spare",
			"actor.claiming.types", "actor.fetching.scratch", "actor.finishing.spare", "slotindex.Index.key",
		},
	})
	l := language{codec: c, kinds: events(c)}
	c.Admit(&rand.PCG{})
	types := []reflect.Type{reflect.TypeFor[actor.Core](), reflect.TypeFor[actor.Effect]()}
	for _, k := range l.kinds {
		c.Admit(k.boxes...)
		types = append(types, k.typ)
	}
	l.state, l.effects = freeze.FormOf[actor.Core](c), freeze.FormOf[[]actor.Effect](c)
	l.schema = c.Schema(types...)
	return l
}

// kind is one kind of event.
type kind struct {
	name   string
	typ    reflect.Type
	boxes  []any // a value and a pointer: both may stand in Together
	writer func() eventWriter
	read   func([]byte) (actor.Event, error)
}

// eventWriter appends an event of its kind, or a pointer to one. It has a
// single user.
type eventWriter func(w *freeze.Writer, b []byte, ev actor.Event) []byte

func event[E actor.Event](c *freeze.Codec, name string) kind {
	var none E
	return kind{
		name: name, typ: reflect.TypeFor[E](), boxes: []any{none, &none},
		writer: func() eventWriter {
			form, held := freeze.FormOf[E](c), new(E) // an event in an interface has no address
			return func(w *freeze.Writer, b []byte, ev actor.Event) []byte {
				switch e := any(ev).(type) {
				case *E:
					return freeze.Append(w, b, form, e)
				case E:
					*held = e
				}
				b = freeze.Append(w, b, form, held)
				*held = none
				return b
			}
		},
		read: func(b []byte) (actor.Event, error) {
			var e E
			rest, err := freeze.Read(c, b, freeze.FormOf[E](c), &e)
			if err == nil && len(rest) > 0 {
				err = freeze.ErrDamaged
			}
			return e, err
		},
	}
}

// Undecided names the fields with text, of cores, events and effects, of which
// nobody has said whether a file may hold them. They are left out, so that
// nothing leaks, and a replay may go astray. A test keeps the list empty.
func Undecided() []string { return files.codec.Unjudged() }

// Events names the types of the events that can be recorded.
func Events() (names []string) {
	for _, k := range files.kinds {
		names = append(names, k.typ.Name())
	}
	return names
}
