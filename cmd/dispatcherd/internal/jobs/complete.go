package jobs

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/cmd/dispatcherd/internal/ask"
	"github.com/dispatcherd/dispatcherd/cmd/dispatcherd/internal/console"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/httpapi"
	"github.com/dispatcherd/dispatcherd/internal/httpapi/rest"
)

// Bounds of a completion in the shell of a user, who waits for it.
const (
	completionTime = time.Second
	completionPage = 100
)

// completion offers values for an argument or a flag, never names of files.
type completion = func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective)

// completeIDs offers the newest jobs with one of the statuses.
func (a commands) completeIDs(statuses ...dispatcherd.Status) completion {
	return a.complete(func(cmd *cobra.Command, add func(value, about string)) error {
		page, err := ask.Page[contract.JobPage](cmd.Context(), &a.API, "/v1/jobs", httpapi.JobQuery{
			JobFilter: httpapi.JobFilter{Status: statuses}, Query: rest.Query{Limit: completionPage}})
		for i := range page.Items {
			add(fmt.Sprint(page.Items[i].ID), page.Items[i].Type+" "+string(page.Items[i].Status))
		}
		return err
	})
}

// typeFlag adds the flag --type, which selects elements of a type.
func (a commands) typeFlag(cmd *cobra.Command, typ *string, usage string) {
	cmd.Flags().StringVar(typ, "type", "", usage)
	_ = cmd.RegisterFlagCompletionFunc("type", a.completeTypes()) // fails for an unknown flag only
}

// completeTypes offers the types of a dispatcher.
func (a commands) completeTypes() completion {
	return a.complete(func(cmd *cobra.Command, add func(value, about string)) error {
		page, err := ask.Page[httpapi.TypePage](cmd.Context(), &a.API, "/v1/types", rest.Query{Limit: completionPage})
		for i := range page.Items {
			add(page.Items[i].Type, console.Counted(int64(page.Items[i].Capacity), "slot"))
		}
		return err
	})
}

// complete resolves the settings, because cobra does not run the hooks of a command that it
// completes. It offers nothing after an error: a shell shows no errors.
func (a commands) complete(find func(cmd *cobra.Command, add func(value, about string)) error) completion {
	return func(cmd *cobra.Command, _ []string, begun string) (offers []string, _ cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(cmd.Context(), completionTime)
		defer cancel()
		cmd.SetContext(ctx)
		err := a.Resolve(cmd)
		if err == nil {
			err = find(cmd, func(value, about string) {
				if strings.HasPrefix(value, begun) {
					offers = append(offers, console.OneLine(value)+"\t"+console.OneLine(about))
				}
			})
		}
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return offers, cobra.ShellCompDirectiveNoFileComp
	}
}
