// Package console writes the output of the program: data as tables or JSON on one stream,
// messages on another.
package console

import (
	"fmt"
	"io"
)

// Console contains the streams of one invocation. Commands use no other streams, so tests run
// the whole program in process.
type Console struct {
	In       io.Reader
	Out, Err io.Writer // data; messages
	Format   Format    // of the data: --output
}

// Say writes a message, separate from the data.
func (c *Console) Say(format string, args ...any) {
	fmt.Fprintln(c.Err, Printable(fmt.Sprintf(format, args...)))
}
