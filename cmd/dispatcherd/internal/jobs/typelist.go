package jobs

import (
	"strconv"

	"github.com/spf13/cobra"

	"github.com/dispatcherd/dispatcherd/cmd/dispatcherd/internal/ask"
	"github.com/dispatcherd/dispatcherd/cmd/dispatcherd/internal/settings"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/httpapi"
	"github.com/dispatcherd/dispatcherd/internal/httpapi/rest"
)

// TypesCommand lists the types of a running dispatcher.
func TypesCommand(invocation *settings.Invocation) *cobra.Command {
	a := commands{invocation}
	var at ask.Dispatcher
	var page *rest.Query
	cmd := &cobra.Command{
		Use:        "types",
		SuggestFor: []string{"queues", "depth", "top", "stats"},
		Short:      "List types, their slots and their waiting jobs",
		Args:       settings.NoArguments,
		Example:    "  dispatcherd types\n  dispatcherd types --limit 50 -o jsonl",
		RunE: func(cmd *cobra.Command, _ []string) error {
			answer, err := ask.Page[httpapi.TypePage](cmd.Context(), &at, "/v1/types", *page)
			if err != nil {
				return err
			}
			header := []string{"type", "slots", "free", "other slots", "pending", "known", "requests", "oldest"}
			const none = "No type is known: no worker has offered one."
			return settings.PrintPage(a.Invocation, "types", answer.Page, header, typeRow, none)
		},
	}
	page = settings.PageFlags(cmd, "types")
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
