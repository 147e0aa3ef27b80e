package settings

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/dispatcherd/dispatcherd/internal/exit"
)

// Agree returns an error unless the user agrees on a terminal to what a command will do. Without a
// terminal the error names the flag that agrees.
func (a *Invocation) Agree(what, flag string) error {
	switch {
	case !a.IsTerminal(a.In) || !a.IsTerminal(a.Err):
		return exit.Errorf(exit.Negative, "nothing was changed. This would %s. Add %s to do it", what, flag)
	case !a.confirm(fmt.Sprintf("This will %s.", what)):
		return exit.Errorf(exit.Negative, "nothing was changed")
	}
	return nil
}

// confirm asks the user. Only y and yes agree.
func (a *Invocation) confirm(what string) bool {
	fmt.Fprintf(a.Err, "%s Continue? [y/N] ", what)
	answer, err := bufio.NewReader(io.LimitReader(a.In, 100)).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return false
	}
	answer = strings.ToLower(strings.TrimSpace(answer))
	return cmp.Or(answer, "n") == "y" || answer == "yes"
}
