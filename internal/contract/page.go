package contract

import (
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"unicode/utf8"
)

// Cursor is the place in a list after which a page begins: the key of the last element of the page before. In texts it is
// encoded, so that no caller makes a cursor itself.
type Cursor string

// MarshalText returns the encoded cursor.
func (c Cursor) MarshalText() ([]byte, error) {
	return []byte(c.String()), nil
}

// String returns the encoded cursor.
func (c Cursor) String() string { return base64.RawURLEncoding.EncodeToString([]byte(c)) }

// UnmarshalText reads an encoded cursor. The key of an element is a text that Postgres can store.
func (c *Cursor) UnmarshalText(text []byte) error {
	key, err := base64.RawURLEncoding.DecodeString(string(text))
	if *c = Cursor(key); err != nil || !utf8.Valid(key) || slices.Contains(key, 0) {
		err = errors.New("must be the cursor of the next page, as the previous page names it")
	}
	return err
}

// CursorOf returns the cursor of an element by its key.
func CursorOf(key any) Cursor { return Cursor(fmt.Sprint(key)) }

// Page is a part of a list.
type Page[T any] struct {
	Items []T    `json:"items"`
	Next  Cursor `json:"next_cursor,omitempty"` // the cursor of the next page; absent: there is none
	// Why elements are old or missing: of the list of a whole cluster, which dispatchers did not answer; of a search, where it ended.
	Notes []string `json:"notes,omitempty"`
}

// Conceal implements Confidential, if the elements do.
func (p *Page[T]) Conceal() {
	for i := range p.Items {
		if item, is := any(&p.Items[i]).(Confidential); is {
			item.Conceal()
		}
	}
}
