package cli

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// FlagError explains an error of a flag in terms of the command line.
func FlagError(cmd *cobra.Command, err error) error {
	var invalid *pflag.InvalidValueError
	var unknown *pflag.NotExistError
	words := cmd.Flags().Args()
	switch {
	case cmd.HasSubCommands() && len(words) > 0: // the flag belongs to an unknown command
		return UnknownCommand(cmd, words[0])
	case errors.As(err, &invalid):
		return fmt.Errorf("--%s is %q: %w", invalid.GetFlag().Name, invalid.GetValue(), plainly(invalid.GetFlag(), invalid.Unwrap()))
	case errors.As(err, &unknown) && isDigits(unknown.GetSpecifiedShortnames()):
		number := "-" + unknown.GetSpecifiedShortnames()
		if cmd.HasParent() && cmd.Parent().Name() == "job" {
			return fmt.Errorf(
				"%q is not the id of a job: ids of jobs are numbers from 1; negative ids name requests in memory, see job why and slot list",
				number,
			)
		}
		return fmt.Errorf("%q is taken for a flag: give a flag's value that begins with - as in --name=%s", number, number)
	case errors.As(err, &unknown) && len(unknown.GetSpecifiedShortnames()) == 0:
		switch {
		case unknown.GetSpecifiedName() != "database-url":
		case cmd.Name() == "dev":
			return errors.New("dev runs a Postgres of its own: use --database-url with serve")
		default:
			return fmt.Errorf("%q does not use Postgres itself; if it asks a dispatcher, --api-socket or --api names it", cmd.CommandPath())
		}
		name, longer := unknown.GetSpecifiedName(), ""
		var names []string
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if names = append(names, f.Name); strings.Contains("-"+f.Name+"-", "-"+name+"-") {
				longer = f.Name
			}
		})
		if near := cmp.Or(Nearest(name, names), longer); near != "" {
			return fmt.Errorf("%w (did you mean --%s?)", err, near)
		}
		if strings.Contains(cmd.Use, "COLUMN=VALUE") {
			return fmt.Errorf("%w (give a column without --, as in %s=VALUE)", err, name)
		}
	}
	return err
}

func isDigits(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }

// plainly replaces the error of a value by one without terms of the programming language.
func plainly(f *pflag.Flag, err error) error {
	var number *strconv.NumError
	isNumber := errors.As(err, &number)
	switch {
	case isNumber && f.Value.Type() == "bool":
		return errors.New("give true or false")
	case isNumber && errors.Is(number.Err, strconv.ErrRange):
		return errors.New("the number is too large")
	case isNumber && strings.HasPrefix(f.Value.Type(), "float"):
		return errors.New("give a number")
	case isNumber:
		return errors.New("give a whole number")
	}
	return err
}
