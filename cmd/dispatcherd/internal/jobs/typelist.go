package jobs

import (
	"net/url"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/dispatcherd/dispatcherd/cmd/dispatcherd/internal/ask"
	"github.com/dispatcherd/dispatcherd/cmd/dispatcherd/internal/console"
	"github.com/dispatcherd/dispatcherd/cmd/dispatcherd/internal/settings"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/httpapi"
)

// TypesCommand lists the types of a running dispatcher.
func TypesCommand(invocation *settings.Invocation) *cobra.Command {
	a := commands{invocation}
	var at ask.Dispatcher
	var after string
	limit := httpapi.DefaultEntries
	cmd := &cobra.Command{
		Use:        "types",
		SuggestFor: []string{"queues", "depth", "top", "stats"},
		Short:      "List types, their slots and their waiting jobs",
		Args:       settings.NoArguments,
		Example:    "  dispatcherd types\n  dispatcherd types --after pdf --limit 50 -o jsonl",
		RunE: func(cmd *cobra.Command, _ []string) error {
			query := url.Values{"after": {after}, "limit": {strconv.Itoa(limit)}}
			var answer httpapi.TypeList
			if err := at.JSON(cmd.Context(), "/v1/types?"+query.Encode(), &answer); err != nil {
				return err
			}
			switch {
			case len(answer.Types) > 0:
			case after != "":
				a.Say("There are no such types.")
			default:
				a.Say("No type is known: no worker has offered one.")
			}
			header := []string{"type", "slots", "free", "other slots", "pending", "known", "requests", "oldest"}
			if err := console.PrintList(&a.Console, "types", answer.Types, header, typeRow); err != nil {
				return err
			}
			if answer.Next != "" {
				a.Say("There are more: --after %s shows the next page.", answer.Next)
			}
			return nil
		},
	}
	cmd.Flags().IntVar(&limit, "limit", limit, "types per page")
	cmd.Flags().StringVar(&after, "after", "", "continue after this type")
	settings.OnlyOnCommandLine(cmd.Flags(), "limit", "after")
	settings.Between(cmd.Flags(), "1", strconv.Itoa(httpapi.MaxEntries), "limit")
	a.APIFlags(cmd.Flags(), &at)
	return cmd
}

func typeRow(t *httpapi.Type) []string {
	return []string{
		t.Type, strconv.Itoa(t.Capacity), strconv.Itoa(t.Free), strconv.Itoa(t.OtherSlots), pendingText(t.Pending), strconv.Itoa(t.Known),
		strconv.Itoa(t.Requests), spanOf(max(t.Oldest, t.OldestKeyed)).String(),
	}
}

// pendingText returns a count of pending rows, which is exact up to a limit.
func pendingText(rows *int) string {
	switch {
	case rows == nil:
		return "not counted"
	case *rows > contract.PendingLimit:
		return "over " + strconv.Itoa(contract.PendingLimit)
	}
	return strconv.Itoa(*rows)
}
