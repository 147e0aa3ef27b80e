package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/dispatcherd/dispatcherd"
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
func (a *Invocation) completeIDs(statuses ...dispatcherd.Status) completion {
	q := httpapi.JobQuery{Filter: contract.Filter{Statuses: statuses}, Query: rest.Query{Limit: completionPage}}
	return complete(a, "/v1/jobs", q, func(j *contract.Job) (value, about string) {
		return fmt.Sprint(j.ID), j.Type + " " + string(j.Status)
	})
}

// typeFlag adds the flag --type, which selects elements of a type.
func (a *Invocation) typeFlag(cmd *cobra.Command, typ *string, usage string) {
	cmd.Flags().StringVar(typ, "type", "", usage)
	_ = cmd.RegisterFlagCompletionFunc("type", a.completeTypes()) // fails for an unknown flag only
}

// completeTypes offers the types of a dispatcher.
func (a *Invocation) completeTypes() completion {
	return complete(a, "/v1/types", local(completionPage), func(t *contract.Type) (value, about string) {
		return t.Type, Counted(t.Capacity, "slot")
	})
}

// local selects types of the dispatcher that answers, which needs no other dispatcher.
func local(limit int) rest.TypeNames {
	q := rest.TypeNames{Scope: rest.Scope{Local: true}}
	q.Limit = limit
	return q
}

// complete offers the elements of a list. It resolves the settings, because cobra does not run the hooks of a command that it
// completes. It offers nothing after an error: a shell shows no errors.
func complete[T any](a *Invocation, path string, query any, offer func(*T) (value, about string)) completion {
	return func(cmd *cobra.Command, _ []string, begun string) (offers []string, _ cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(cmd.Context(), completionTime)
		defer cancel()
		var page contract.Page[T]
		if a.Resolve(cmd) == nil {
			_ = a.OverAPI(func() (err error) {
				page, err = Page[contract.Page[T]](ctx, a, path, query)
				return err
			})
		}
		for i := range page.Items {
			if value, about := offer(&page.Items[i]); strings.HasPrefix(value, begun) {
				offers = append(offers, OneLine(value)+"\t"+OneLine(about))
			}
		}
		return offers, cobra.ShellCompDirectiveNoFileComp
	}
}
