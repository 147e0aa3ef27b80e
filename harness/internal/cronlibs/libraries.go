package cronlibs

import (
	"errors"
	"strings"
	"time"

	"github.com/adhocore/gronx"
	supercronic "github.com/aptible/supercronic/cronexpr"
	hashicorp "github.com/hashicorp/cronexpr"
	netresearch "github.com/netresearch/go-cron"
	"github.com/reugn/go-quartz/quartz"
	robfig "github.com/robfig/cron/v3"

	"github.com/dispatcherd/dispatcherd/internal/schedule/cron"
)

// next returns the first occasion after an instant, or the zero time.
type next func(after time.Time) time.Time

// library parses an expression for a zone.
type library struct {
	name  string
	parse func(expr string, zone *time.Location) (next, error)
}

// withSeconds adds seconds to an expression without them.
func withSeconds(expr string) string {
	if len(strings.Fields(expr)) == 5 {
		return "0 " + expr
	}
	return expr
}

var libraries = []library{
	{"dispatcherd", func(expr string, zone *time.Location) (next, error) {
		e, err := cron.Parse(expr)
		return func(after time.Time) time.Time {
			at, _ := e.Next(after, zone)
			return at
		}, err
	}},
	{"robfig/cron", func(expr string, zone *time.Location) (next, error) {
		const all = robfig.SecondOptional | robfig.Minute | robfig.Hour | robfig.Dom | robfig.Month | robfig.Dow | robfig.Descriptor
		s, err := robfig.NewParser(all).Parse(expr)
		return func(after time.Time) time.Time { return s.Next(after.In(zone)) }, err
	}},
	{"netresearch/go-cron", func(expr string, zone *time.Location) (next, error) {
		parser, err := netresearch.TryNewParser(
			netresearch.SecondOptional | netresearch.Minute | netresearch.Hour | netresearch.Dom | netresearch.Month | netresearch.Dow | netresearch.Descriptor | netresearch.Extended | netresearch.DowOrDom,
		)
		if err != nil {
			return nil, err
		}
		s, err := parser.Parse(expr)
		return func(after time.Time) time.Time { return s.Next(after.In(zone)) }, err
	}},
	{"adhocore/gronx", func(expr string, zone *time.Location) (next, error) {
		if !gronx.IsValid(expr) {
			return nil, errors.New("invalid")
		}
		return func(after time.Time) time.Time {
			at, err := gronx.NextTickAfter(expr, after.In(zone), false)
			if err != nil {
				return time.Time{}
			}
			return at
		}, nil
	}},
	{"hashicorp/cronexpr", func(expr string, zone *time.Location) (next, error) {
		e, err := hashicorp.Parse(expr)
		return func(after time.Time) time.Time { return e.Next(after.In(zone)) }, err
	}},
	{"aptible/supercronic", func(expr string, zone *time.Location) (next, error) {
		e, err := supercronic.Parse(expr)
		return func(after time.Time) time.Time { return e.Next(after.In(zone)) }, err
	}},
	{"reugn/go-quartz", func(expr string, zone *time.Location) (next, error) {
		e, err := quartz.NewCronTriggerWithLoc(withSeconds(expr), zone)
		return func(after time.Time) time.Time {
			at, err := e.NextFireTime(after.UnixNano())
			if err != nil {
				return time.Time{}
			}
			return time.Unix(0, at)
		}, err
	}},
}
