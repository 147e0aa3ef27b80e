// Package console is what the program shows: data as tables or JSON on one stream,
// messages for people on another, a bar for what takes long.
package console

import (
	"fmt"
	"io"
)

// Console is what one invocation of the program reads and writes. Commands look
// at no other stream, so tests run the whole program in process.
type Console struct {
	In       io.Reader
	Out, Err io.Writer // data; messages
	Format   Format    // of the data: --output
}

// Say writes a message for the human, apart from the data.
func (c *Console) Say(format string, args ...any) { fmt.Fprintf(c.Err, format+"\n", args...) }
