package rest

import (
	"cmp"
	"fmt"
	"reflect"

	"github.com/dispatcherd/dispatcherd/internal/contract"
)

// Query selects a page of a list.
type Query struct {
	// Largest number of elements of the page.
	Limit int `param:"limit" default:"100" minimum:"1" maximum:"1000"`
	// The page begins after the previous page, whose next_cursor this is. Absent: it begins with the first element.
	Cursor contract.Cursor `param:"cursor"`
}

// Names selects a page of a list of names.
type Names struct {
	Query

	Prefix string `param:"prefix"` // Only names that begin with this text.
}

// Scope says whose elements a list contains.
type Scope struct {
	// Only those of the dispatcher that answers. Otherwise those of the whole cluster; notes then says which dispatchers did not answer.
	Local bool `param:"local"`
}

// Everywhere selects a page of a list of what dispatchers have in memory.
type Everywhere struct {
	Query
	Scope
}

// TypeNames selects a page of types.
type TypeNames struct {
	Names
	Scope
}

// Slots selects a page of slots.
type Slots struct {
	Query
	Scope

	Type string `param:"type"` // Only slots that support this type.
}

const cursorRule = "must be next_cursor of the previous page of this list"

// ErrCursor is the error for a cursor of another list.
var ErrCursor = InvalidRequest.Of("cursor: " + cursorRule)

// After reads the key of a cursor, which is a text or a number, into a variable. Without a cursor, the variable is not changed.
func After(c contract.Cursor, key any) error {
	text := string(c)
	if p, is := key.(*string); is {
		*p = cmp.Or(text, *p)
		return nil
	}
	if text == "" {
		return nil
	}
	if _, err := fmt.Sscan(text, key); err != nil || fmt.Sprint(reflect.ValueOf(key).Elem()) != text {
		return ErrCursor
	}
	return nil
}

// PageOf returns a page of the first elements of a list. If the list contains more than the limit, another page follows.
func PageOf[T any](list []T, limit int, key func(*T) any) (p contract.Page[T]) {
	p.Items = append([]T{}, list[:min(limit, len(list))]...)
	if len(list) > limit {
		p.Next = contract.CursorOf(key(&list[limit-1]))
	}
	return p
}

// Cut returns a page of a whole list, whose keys ascend.
func Cut[T any, K cmp.Ordered](list []T, q Query, key func(*T) K) (contract.Page[T], error) {
	var after K
	if err := After(q.Cursor, &after); err != nil {
		return contract.Page[T]{}, err
	}
	for q.Cursor != "" && len(list) > 0 && key(&list[0]) <= after {
		list = list[1:]
	}
	return PageOf(list, q.Limit, func(v *T) any { return key(v) }), nil
}

// Bulk says what becomes of all elements that a filter selects. A call needs expect or dry_run.
type Bulk struct {
	// Number of elements that the caller expects the filter to select. If it selects another number, nothing is changed.
	Expect *int `param:"expect" minimum:"0" maximum:"1000"`
	// Change nothing, and only count the elements that the filter selects.
	DryRun bool `param:"dry_run"`
	// Select at most so many elements. Absent: 1,000; in a dry run, as many as one search finds.
	Limit int `param:"limit" minimum:"1" maximum:"1000"`
	// Begin after the elements of the previous call, whose next_cursor this is.
	Cursor contract.Cursor `param:"cursor"`
}
